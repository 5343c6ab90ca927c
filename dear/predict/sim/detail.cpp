#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/predict/sim/evaluate.h"

namespace dear::sim {
namespace {

constexpr std::array kDetails{Detail::closed_form, Detail::flows, Detail::blocks};

}  // namespace

std::string name_of(Detail detail) {
  switch (detail) {
    case Detail::closed_form:
      return "closed-form";
    case Detail::flows:
      return "flows";
    case Detail::blocks:
      break;
  }
  return "blocks";
}

Detail parse_detail(std::string_view text) {
  std::vector<std::string> names;
  for (const Detail detail : kDetails) {
    if (name_of(detail) == text) return detail;
    names.push_back(name_of(detail));
  }
  throw ConfigError(fmt::format("there is no detail '{}'{} choose one of {}", text,
                                did_you_mean(text, {names.begin(), names.end()}, ":"),
                                fmt::join(names, ", ")));
}

}  // namespace dear::sim
