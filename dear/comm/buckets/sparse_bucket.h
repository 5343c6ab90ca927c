#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/comm/buckets/on_device.h"
#include "dear/comm/group/group.h"

namespace dear::buckets {

// [Note: sparse buckets] The gradient of an embedding has few rows that are not zero. Its tensor has a bucket
// of its own, whose reduction the wire carries out as rows where that is less to send: ranks gather how many
// rows each has, and then the rows with their numbers; each rank adds them up, in the order of ranks, where
// the dense reduction would have left its result. So the flat gradients end as they would have, to the bit,
// and schedule, conductor and optimiser know nothing of it. Where a rank has too many rows the dense
// reduction follows the counts instead: all ranks see the same counts, and decide alike.
//
// A row counts as one that is not zero where a bit of it is set. A gradient of -0.0 in all elements is that
// of a rank that did not use the parameter ([Note: unused parameters]): it has a count of its own, and no
// rows.
//
// On a device rows are found there, and no others are copied. A dense reduction from the host is slow, so
// after one the gradient stays on the device for kRest steps, before its rows are looked at again.

// The bucket of one tensor, in blocks of its memory that are called rows. One reduction at a time.
class SparseBucket {
 public:
  using Tensor = RowsOfTensor;
  struct Choice {
    bool as_rows = false;
    std::int64_t rows = 0;  // the most of a rank; when too many, so many as were looked at
    double share = 0;       // of the bytes of the dense gradient, what all ranks gather
  };
  // Is told each choice, on the group's thread, and must not throw.
  using Chosen = std::function<void(const Choice& choice)>;

  static constexpr int kRest = 15;  // steps
  // `gradients`: of the whole bucket, in memory of the group. On a device they are `copy`, from where rows
  // are taken, and to where the result is given. Allocates on the group: all ranks together, in the same
  // order.
  SparseBucket(const View& gradients, const Tensor& tensor, const Group& group, Chosen chosen,
               std::unique_ptr<HostCopy> copy = nullptr);
  // Whether rows could ever be less to send: without that, no bucket is to be made. `bytes`: of the tensor.
  static bool worthwhile(std::int64_t bytes, std::int64_t rows, int ranks);

  // Whether the request is a reduction of all of the bucket.
  [[nodiscard]] bool carries(const Request& request) const;
  // On a device, before begin(), on the program's thread: whether the reduction stays there this time. If
  // not, what the program has enqueued comes before the rows are looked at.
  [[nodiscard]] bool stays_on_device();
  [[nodiscard]] bool on_device() const { return copy_ != nullptr; }
  // Finds this rank's rows, and returns the request that comes before the reduction.
  [[nodiscard]] Request begin(const Request& reduction);
  // When that has ended, on the group's thread: what is left to be sent, if anything.
  [[nodiscard]] std::optional<Request> next();
  // When that has ended, on the group's thread: writes the result.
  void end();

  [[nodiscard]] std::int64_t bytes() const { return counts_.bytes() + payloads_.bytes(); }  // of memory

 private:
  [[nodiscard]] std::byte* row_at(std::int64_t row) const;
  [[nodiscard]] std::int64_t& count_of(int rank) const;
  [[nodiscard]] const std::int32_t* numbers_of(int rank) const;
  [[nodiscard]] std::byte* values_of(int rank) const;
  [[nodiscard]] bool is_marked_unused() const;
  void pack();
  // Returns the rows that a rank has.
  std::vector<std::int32_t> add_up(const Range& range);

  const View gradients_;
  const Tensor tensor_;
  const std::int64_t row_bytes_;
  const int rank_, ranks_;
  const std::int64_t most_;  // rows of one rank that travel as rows
  const Chosen chosen_;
  const std::unique_ptr<HostCopy> copy_;
  Buffer counts_, payloads_;
  std::vector<std::int32_t> mine_;  // numbers of this rank's rows, ascending
  Request reduction_{};
  std::int64_t room_ = 0;  // rows that each rank's part of the payloads has room for
  bool as_rows_ = false;
  int rest_ = 0;  // steps that the gradient stays on the device
};

}  // namespace dear::buckets
