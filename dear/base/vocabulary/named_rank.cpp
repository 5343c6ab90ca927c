#include "dear/base/vocabulary/named_rank.h"

#include <charconv>
#include <system_error>

namespace dear {

std::optional<int> rank_named_first(std::string_view sentence) {
  constexpr std::string_view kRank = "rank ";
  if (!sentence.starts_with(kRank)) return std::nullopt;
  sentence.remove_prefix(kRank.size());
  int rank = -1;
  const auto [end, error] = std::from_chars(sentence.data(), sentence.data() + sentence.size(), rank);
  if (error != std::errc() || rank < 0 || end == sentence.data() + sentence.size() || *end != ' ')
    return std::nullopt;
  return rank;
}

}  // namespace dear
