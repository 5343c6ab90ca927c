#include "dear/train/data_parallel/bucket_choice.h"

#include <utility>

#include "dear/platform/cost/collective_times.h"
#include "dear/platform/cost/ring.h"
#include "dear/schedule/fusion/planned.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/bucket_chooser.h"

namespace dear {
namespace {

class PlannedBuckets final : public train::BucketChooser {
 public:
  PlannedBuckets(Fusion first, train::ChooserSetting setting)
      : first_(std::move(first)), setting_(std::move(setting)) {}

  [[nodiscard]] Fusion start(const Workload& /*workload*/) override { return first_; }

  [[nodiscard]] train::NewBuckets begin(const Workload& timed, const Link& link,
                                        const Grouping& /*running*/) override {
    const cost::CollectiveTimes times = cost::ring_times(link, setting_.group.size());
    ByName names = names_in(timed, group_planned(timed, times, find_policy(setting_.policy).overlap));
    names.source = "planned";
    return {.fusion = Fusion(std::move(names)), .why = "plan"};
  }

 private:
  const Fusion first_;
  const train::ChooserSetting setting_;
};

}  // namespace

BucketChoice given(Fusion fusion) {
  std::string text = fusion.text();
  return {.first = std::move(fusion), .text = std::move(text)};
}

BucketChoice planned(Fusion first) {
  return {.first = first, .text = "planned", .make = [first](const train::ChooserSetting& setting) {
            return std::make_unique<PlannedBuckets>(first, setting);
          }};
}

}  // namespace dear
