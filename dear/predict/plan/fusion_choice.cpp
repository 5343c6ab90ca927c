#include "dear/predict/plan/fusion_choice.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/fusion/planned.h"

namespace dear::plan {

FusionChoice FusionChoice::parse(std::string_view text) {
  FusionChoice choice;
  choice.text_ = text;
  if (text == "usual") return choice;
  if (text == "planned") {
    choice.kind_ = Kind::planned;
    return choice;
  }
  try {
    return FusionChoice(Fusion::parse(text));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}; or usual, or planned", error.what()));
  }
}

Grouping FusionChoice::resolve(const Policy& policy, const Workload& workload,
                               const cost::CollectiveTimes& times) const {
  switch (kind_) {
    case Kind::usual:
      return policy.usual_grouping(workload, times);
    case Kind::planned:
      return group_planned(workload, times, policy.overlap);
    case Kind::given:
      break;
  }
  return given_(workload);
}

}  // namespace dear::plan
