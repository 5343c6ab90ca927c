#pragma once

#include <optional>
#include <string_view>

namespace dear {

// 2 of "rank 2 died while ...", the form of sentences on what a rank did; none of another sentence.
std::optional<int> rank_named_first(std::string_view sentence);

}  // namespace dear
