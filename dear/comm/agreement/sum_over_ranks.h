#pragma once

#include <cstdint>
#include <utility>

#include "dear/comm/agreement/call.h"
#include "dear/comm/group/buffer.h"
#include "dear/comm/group/group.h"

namespace dear::agreement {

// Adds up a number of each rank, in the order of ranks, so that every rank gets the same bits: one small
// all-gather, in memory that is kept. For one thread.
class SumOverRanks {
 public:
  explicit SumOverRanks(Group group) : group_(std::move(group)) {}

  enum class As : std::uint8_t { sum, largest };
  // All ranks together. MismatchError on every rank where one makes another call, or gives it something else.
  double of(const CallMade& call, double mine, As as = As::sum);
  [[nodiscard]] std::int64_t bytes() const { return numbers_.bytes(); }  // of memory

 private:
  Group group_;
  Buffer numbers_;
};

}  // namespace dear::agreement
