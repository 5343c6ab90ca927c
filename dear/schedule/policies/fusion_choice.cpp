#include "dear/schedule/policies/fusion_choice.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/fusion/planned.h"

namespace dear {
namespace {

constexpr std::string_view kPlanned = "planned", kUsual = "usual", kTuned = "auto", kTunedFrom = "auto=";

// `others` names the forms that are no sizes.
Fusion parse_fusion(std::string_view text, const std::string& others) {
  try {
    return Fusion::parse(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}; or {}", error.what(), others));
  }
}

}  // namespace

FusionChoice FusionChoice::of_training(std::string_view text) {
  if (text == kPlanned) return {.kind = Kind::planned};
  if (text == kTuned) return {.kind = Kind::tuned};
  const bool tuned = text.starts_with(kTunedFrom);
  return {.kind = tuned ? Kind::tuned : Kind::given,
          .fusion = parse_fusion(tuned ? text.substr(kTunedFrom.size()) : text,
                                 fmt::format("{}, {} or {}SIZE", kPlanned, kTuned, kTunedFrom))};
}

FusionChoice FusionChoice::of_simulation(std::string_view text) {
  if (text == kUsual) return {.kind = Kind::usual};
  if (text == kPlanned) return {.kind = Kind::planned};
  return {.kind = Kind::given, .fusion = parse_fusion(text, "usual, or planned")};
}

std::string FusionChoice::text() const {
  if (kind == Kind::usual) return std::string(kUsual);
  if (kind == Kind::planned) return std::string(kPlanned);
  if (kind == Kind::given) return fusion.text();
  const bool default_size = fusion.text() == Fusion().text();
  return default_size ? std::string(kTuned) : fmt::format("{}{}", kTunedFrom, fusion.text());
}

Grouping FusionChoice::resolve(const Policy& policy, const Workload& workload,
                               const cost::CollectiveTimes& times) const {
  if (kind == Kind::usual) return policy.usual_grouping(workload, times);
  if (kind == Kind::planned) return group_planned(workload, times, policy.overlap);
  return fusion(workload);
}

}  // namespace dear
