#include "dear/base/vocabulary/collective.h"

#include <array>
#include <cstddef>

namespace dear {

std::string_view name_of(Collective collective) {
  constexpr std::array<std::string_view, 8> kNames = {"barrier",    "reduce-scatter", "all-gather",
                                                      "all-reduce", "broadcast",      "all-to-all",
                                                      "reduce",     "all-to-all-v"};
  const auto index = static_cast<std::size_t>(collective);
  return index < kNames.size() ? kNames[index] : "unknown collective";
}

}  // namespace dear
