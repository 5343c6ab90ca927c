#include "dear/comm/group/endings.h"

#include <string_view>

#include <fmt/format.h>

#include "dear/base/vocabulary/named_rank.h"

namespace dear::comm {
namespace {

// "collective 98: rank 3 asks for a barrier, rank 1 for ...": each rank that sees it says the same.
bool tells_who_differs(std::string_view reason) {
  constexpr std::string_view kEnd = ": ";
  const std::size_t end = reason.find(kEnd);
  return reason.starts_with("collective ") && end != std::string_view::npos &&
         rank_named_first(reason.substr(end + kEnd.size()));
}

}  // namespace

std::string failure_of(int rank, const std::string& reason) {
  if (rank_named_first(reason) || tells_who_differs(reason)) return reason;
  return fmt::format("rank {} failed: {}", rank, reason);
}

}  // namespace dear::comm
