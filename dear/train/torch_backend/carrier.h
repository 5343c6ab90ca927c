#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/conductor/serial_lane.h"
#include "dear/train/torch_backend/staging_ring.h"

namespace dear::torch_backend {

// A collective on memory of anybody's. A vector has blocks of `count` elements, one for each rank:
//
//   all_reduce      `from` and `to` are the vector, one block
//   broadcast       likewise; `from` is read on the root, `to` is written elsewhere
//   reduce          likewise; `to` is written on the root
//   all_gather      `from` is one block, `to` a block for each rank
//   reduce_scatter  `from` is a block for each rank, `to` one block
//   all_to_all      both are a block for each rank
//   all_to_all_v    likewise, of sizes of their own
//   barrier         neither has any
//
// `from` and `to` may be the same memory where they have as many blocks.
struct Operation {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  int root = 0;
  std::int64_t count = 0;              // elements of a block; of an all_to_all_v anything
  std::vector<const std::byte*> from;  // by block
  std::vector<std::byte*> to;          // by block
  // Elements of each block of an all_to_all_v. What a rank takes, the other has to give: otherwise the group
  // ends on all ranks, with a sentence that names both, before anything is written.
  std::vector<std::int64_t> gives{}, takes{};
  // Called once, on any thread, when `to` is written, or with what went wrong. Must not wait for another
  // operation, and must not throw. Whatever keeps the memory alive is kept by it.
  std::function<void(std::exception_ptr)> done;
};

// Carries operations in the memory that a group has of its own. [Note: staged chunks] An operation has a
// place in a ring of staging memory, and passes through it chunk by chunk: what peers read is copied in, the
// collective runs, what peers gave is copied out. A rank's own shard of a reduction is read and written where
// it lies. The thread that runs collectives copies too: the chunk stays in one cache, and no thread is woken
// between two chunks. Ranks ask for the same operations in the same order, so they use the same places of the
// ring. The first chunk of an all-to-all-v says the sizes, so that all ranks know how many follow.
//
// Methods are called from any thread; the order of calls is that of the operations.
class Carrier {
 public:
  struct Options {
    std::int64_t ring_bytes = std::int64_t{4} << 20;
    std::int64_t chunk_bytes = std::int64_t{1} << 20;
  };
  Carrier(Group group, const Options& options);
  explicit Carrier(Group group) : Carrier(std::move(group), Options{}) {}
  ~Carrier();  // waits for what is under way
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // Returns once the first chunk is copied in, or at once where earlier operations hold the ring.
  void post(Operation operation);
  // Waits for the end: the operation runs on this thread where nothing else is under way. `done` is called as
  // in post().
  void run(Operation operation);

  [[nodiscard]] const Group& group() const { return group_; }

 private:
  struct Chunk;
  struct UnderWay;
  [[nodiscard]] std::int64_t blocks_of(const Operation& operation) const;
  [[nodiscard]] std::int64_t staged_blocks_of(const Operation& operation) const;
  [[nodiscard]] std::int64_t elements_of_chunk(const Operation& operation) const;
  // The chunk from element `begin` on, in the place that begins at `offset`.
  [[nodiscard]] Chunk chunk_at(const Operation& operation, std::int64_t begin, std::int64_t offset) const;
  [[nodiscard]] Chunk first_chunk(const Operation& operation, std::int64_t offset) const;
  void give_sizes(const Operation& operation, const Chunk& chunk) const;
  void take_sizes(Operation& operation, const Chunk& chunk) const;
  void expect_a_chunk(Operation& operation) const;
  [[nodiscard]] std::optional<std::int64_t> place_at_once(const Operation& operation);
  [[nodiscard]] std::int64_t place(const Operation& operation);
  void give_back(std::int64_t offset);
  [[nodiscard]] static bool own_scattered(const Operation& operation, const Chunk& chunk);
  void copy_in(const Operation& operation, const Chunk& chunk) const;
  void copy_out(Operation& operation, const Chunk& chunk) const;
  [[nodiscard]] Request request_of(const Operation& operation, Chunk& chunk) const;
  void carry_here(Operation& operation);
  void carry(const std::shared_ptr<UnderWay>& operation);
  void ended(const std::shared_ptr<UnderWay>& operation, const std::exception_ptr& error);

  const Group group_;
  const Options options_;
  Buffer buffer_;    // of the ring, from the first operation on
  std::mutex turn_;  // held while an operation is issued, or runs on the thread of a caller
  std::atomic<std::int64_t> under_way_{0};  // operations
  std::atomic<std::int64_t> waiting_{0};    // of them: those that the lane will issue
  std::mutex mutex_;
  std::condition_variable freed_;
  StagingRing ring_;
  conductor::SerialLane lane_;  // last: ends first
};

}  // namespace dear::torch_backend
