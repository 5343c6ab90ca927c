#include <algorithm>
#include <array>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/predict/sim/evaluate.h"

namespace dear::sim {
namespace {

constexpr std::array<std::string_view, 3> kNames{"closed-form", "flows", "blocks"};

}  // namespace

std::string name_of(Detail detail) { return std::string(kNames.at(static_cast<std::size_t>(detail))); }

Detail parse_detail(std::string_view text) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) throw ConfigError(no_such("detail", text, {kNames.begin(), kNames.end()}));
  return static_cast<Detail>(found - kNames.begin());
}

}  // namespace dear::sim
