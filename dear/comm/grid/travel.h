#pragma once

#include <array>
#include <memory>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/grid/chunk_layout.h"
#include "dear/comm/grid/direct_dimension.h"
#include "dear/comm/group/backend.h"
#include "dear/platform/algorithm/chunk_plan.h"

namespace dear::grid {

// Memory for what is on its way through a grid, on each rank alike. A line that takes no buffers but its own
// has one; all others use whichever the chunk is in, or a private one.
class Scratch {
 public:
  explicit Scratch(const std::vector<std::unique_ptr<Backend>>& lines);

  // Makes room for so many bytes in all memories; `sides` is 2 where a line sends from one into another. A
  // collective along the lines.
  void reserve(const std::vector<std::unique_ptr<Backend>>& lines, std::int64_t bytes, int sides,
               Deadline deadline);

  // The memory of the line of a dimension, or -1 where it takes any.
  [[nodiscard]] int of(int dimension) const { return of_dimension_[static_cast<std::size_t>(dimension)]; }
  [[nodiscard]] int any() const { return static_cast<int>(memories_.size()) - 1; }  // the private one
  [[nodiscard]] const Buffer& side(int memory, int side) const {
    return memories_[static_cast<std::size_t>(memory)].sides[static_cast<std::size_t>(side)];
  }

 private:
  struct Memory {
    int dimension = -1;
    std::array<Buffer, 2> sides{};
  };
  std::vector<int> of_dimension_;
  std::vector<Memory> memories_;
};

struct TravelOptions {
  const algorithm::ChunkPlan& plan;
  const std::vector<Places>& places;  // by chunk
  const Request& request;
  int rank = 0;
  bool unsummed = false;  // contributions travel as they are, and their owner adds them in the order of ranks
  bool modelled = false;  // some line is over a modelled network
  std::int64_t label = -1;                  // of all phases, for ranks to compare
  const DirectDimension* direct = nullptr;  // null where no line is direct
};

// One collective on its way through the grid: what each phase of its plan does with the memory of this rank.
class Travel {
 public:
  Travel(const TravelOptions& options, const std::vector<std::unique_ptr<Backend>>& lines, Scratch& scratch,
         Deadline deadline);

  // Phases of different lanes may be served at once, those of a chunk one after another. Returns when the
  // phase is done, on a modelled network as well.
  void serve(algorithm::ChunkPhase phase, SteadyTime ready, Deadline deadline);

 private:
  struct Chunk {
    std::int64_t begin = 0;  // of its piece of each shard
    std::int64_t piece = 0;  // elements
    const Places& places;
    const std::vector<int>& order;
    int memory = -1;  // that it is in; -1: in the user's view
  };
  [[nodiscard]] bool is_direct(const Chunk& chunk, int reduced) const {
    return direct_ != nullptr && reduced == 0 && chunk.order.front() == direct_->dimension;
  }
  // A chunk that travels alone goes through the last dimension of its reduce-scatter, which is the first of
  // its all-gather, in one all-reduce of the line: what is small takes one round instead of two.
  [[nodiscard]] bool is_one_all_reduce(const Chunk& chunk, int reduced) const {
    return request_.collective == Collective::all_reduce && !unsummed_ && chunks_.size() == 1 &&
           index_of(reduced) + 1 == chunk.order.size() && !is_direct(chunk, reduced);
  }
  void divide(std::byte* data, std::int64_t count) const;
  void add_up_directly(Chunk& chunk);
  void take_directly(const Chunk& chunk) const;
  void reduce(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline);
  void pass_on(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline);
  void add_up(Chunk& chunk);
  void gather(Chunk& chunk, int reduced, Backend& line, SteadyTime ready, Deadline deadline);
  void run(Backend& line, Request request, SteadyTime ready, Deadline deadline) const;

  // Memory for a phase in this dimension: the line's, or that which the chunk is in, or that of a later
  // phase.
  [[nodiscard]] int memory_for(const Chunk& chunk, int dimension, bool gathers) const;
  [[nodiscard]] Range piece_of(int rank, const Chunk& chunk) const;  // elements of the user's view
  [[nodiscard]] std::byte* user(std::int64_t element) const;
  [[nodiscard]] std::byte* packed(const Chunk& chunk, int memory, std::int64_t place, int side = 0) const;
  [[nodiscard]] View view_of(const Chunk& chunk, int memory, Range places, int side = 0) const;
  void pack(const Chunk& chunk, int memory) const;
  void unpack(const Chunk& chunk, bool own_too) const;
  void move_to(const Chunk& chunk, int memory, Range places) const;
  [[nodiscard]] std::size_t bytes_of(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * element_);
  }

  const algorithm::ChunkPlan& plan_;
  const Request& request_;
  const std::vector<std::unique_ptr<Backend>>& lines_;
  const Scratch& scratch_;
  int rank_;
  int ranks_;
  bool unsummed_;
  bool modelled_;
  std::int64_t label_;
  const DirectDimension* direct_;
  std::int64_t element_;  // bytes
  std::int64_t stride_;   // elements of a shard
  std::vector<Chunk> chunks_;
};

}  // namespace dear::grid
