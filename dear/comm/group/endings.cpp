#include "dear/comm/group/endings.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/named_rank.h"

namespace dear::comm {

std::string failure_of(int rank, const std::string& reason) {
  if (rank_named_first(reason)) return reason;
  return fmt::format("rank {} failed: {}", rank, reason);
}

}  // namespace dear::comm
