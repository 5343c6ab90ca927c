#include "dear/comm/group/endings.h"

#include <string_view>

#include <fmt/format.h>

namespace dear::comm {

std::string failure_of(int rank, const std::string& reason) {
  constexpr std::string_view kRank = "rank ";
  if (reason.starts_with(kRank)) {
    const std::size_t end = reason.find_first_not_of("0123456789", kRank.size());
    if (end != std::string::npos && end > kRank.size() && reason[end] == ' ') return reason;
  }
  return fmt::format("rank {} failed: {}", rank, reason);
}

}  // namespace dear::comm
