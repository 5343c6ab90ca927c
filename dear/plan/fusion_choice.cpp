#include "dear/plan/fusion_choice.h"

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/fusion/planned.h"

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

namespace {

// A program cannot run collectives of pieces, and a plan is to be what training does.
Grouping uncut(const Workload& workload, const Grouping& grouping) {
  std::vector<Bucket> buckets = grouping.buckets();
  for (Bucket& bucket : buckets) bucket.piece_bytes = 0;
  return Grouping(workload, std::move(buckets));
}

}  // namespace

Grouping FusionChoice::resolve(const Policy& policy, const Workload& workload,
                               const cost::CollectiveTimes& times) const {
  switch (kind_) {
    case Kind::usual:
      return policy.usual_grouping(workload, times);
    case Kind::planned:
      return policy.trains ? uncut(workload, group_planned(workload, times, policy.overlap))
                           : group_planned(workload, times, policy.overlap);
    case Kind::given:
      break;
  }
  return given_(workload);
}

}  // namespace dear::plan
