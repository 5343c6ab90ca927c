#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/comm/group/shard.h"

namespace dear::bench_collectives {

// What each rank's vector holds in a verified run: small whole numbers that depend on the rank and the
// element. They and their sums over up to 256 ranks are exact in every dtype, so any order of adding gives
// the same bytes.
class TestPattern {
 public:
  TestPattern(DType dtype, int ranks);

  [[nodiscard]] int value(int rank, std::int64_t element) const;
  [[nodiscard]] int sum(std::int64_t element) const;  // over all ranks

  // Elements `range` of the vector of `rank`; the first of them goes to `data`.
  void fill(std::byte* data, Range range, int rank) const;

  // Empty when `data`, which begins with the first element of `range`, holds what `rank` had there, or the
  // sums; else what is wrong with the first element that differs.
  [[nodiscard]] std::optional<std::string> differs_from_rank(const std::byte* data, Range range,
                                                             int rank) const;
  [[nodiscard]] std::optional<std::string> differs_from_sum(const std::byte* data, Range range) const;

 private:
  template <typename Expected>
  std::optional<std::string> first_difference(const std::byte* data, Range range, Expected expected) const;

  DType dtype_;
  int ranks_;
  int values_;                          // a rank's numbers are 0 to this, without it
  std::vector<std::uint64_t> encoded_;  // whole numbers as elements of the dtype
};

}  // namespace dear::bench_collectives
