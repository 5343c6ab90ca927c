#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/ring.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/planned.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/bucket_choice.h"
#include "dear/train/data_parallel/bucket_chooser.h"

namespace dear {
namespace {

constexpr double kLess = 0.99;  // of the first candidate's time, for another one to take its place
// A candidate is preferred to wfbp where it is expected to take less than this share of its time. Smaller
// gains were not found in runs (docs/measurements.md, "Policies chosen by the first steps"): wfbp asks least
// of the host.
constexpr double kLessThanWfbp = 0.95;

// Chooses the policy in begin(), by the times of rank 0, and leaves everything else to the chooser of the
// buckets, if there is one: the same object where the policy stays, a new one of the new policy where it
// changes.
class ChosenPolicy final : public train::BucketChooser {
 public:
  ChosenPolicy(train::ChooserSetting setting, BucketChoice buckets)
      : setting_(std::move(setting)),
        candidates_(setting_.policies.empty() ? std::vector{setting_.policy} : setting_.policies),
        buckets_(std::move(buckets)) {
    remake();
  }

  [[nodiscard]] Fusion start(const Workload& workload) override {
    untimed_ = workload;
    return inner_ ? inner_->start(workload) : buckets_.first;
  }

  [[nodiscard]] train::NewBuckets begin(const Workload& timed, const Link& link,
                                        const Grouping& running) override {
    const std::vector<double> seconds =
        agreement::of_rank_0(setting_.group, agreement::Subject::profile, simulated(timed, link, running));
    const auto best = static_cast<std::size_t>(
        std::distance(seconds.begin(), std::min_element(seconds.begin(), seconds.end())));
    std::string chosen = candidates_[seconds[best] < kLess * seconds.front() ? best : 0];
    if (const auto wfbp = std::find(candidates_.begin(), candidates_.end(), "wfbp");
        wfbp != candidates_.end() &&
        seconds[best] >= kLessThanWfbp * seconds[static_cast<std::size_t>(wfbp - candidates_.begin())])
      chosen = *wfbp;
    if (chosen != setting_.policy) {
      setting_.policy = chosen;
      remake();
      if (inner_) static_cast<void>(inner_->start(untimed_));
    }
    train::NewBuckets next =
        inner_ ? inner_->begin(timed, link, running) : train::NewBuckets{.fusion = buckets_.first, .why = ""};
    next.policy = chosen;
    next.why = sentence(chosen, seconds, timed, link);
    return next;
  }

  void changed(double begin_seconds, double end_seconds) override {
    if (inner_) inner_->changed(begin_seconds, end_seconds);
  }
  [[nodiscard]] Wanted iteration_ended(double now_seconds) override {
    return inner_ ? inner_->iteration_ended(now_seconds) : Wanted{};
  }
  [[nodiscard]] Wanted steps_took(const std::vector<double>& seconds, std::int64_t step) override {
    return inner_ ? inner_->steps_took(seconds, step) : Wanted{};
  }
  void network_measured(const Workload& timed, const Link& link, double begin_seconds,
                        double end_seconds) override {
    if (inner_) inner_->network_measured(timed, link, begin_seconds, end_seconds);
  }
  void synchronized() override {
    if (inner_) inner_->synchronized();
  }
  [[nodiscard]] View decision() const override { return inner_ ? inner_->decision() : View{}; }
  [[nodiscard]] Standing standing() const override {
    return inner_ ? inner_->standing() : Standing{.converged = true, .buckets = "given"};
  }
  [[nodiscard]] const TuningProgress* progress() const override {
    return inner_ ? inner_->progress() : nullptr;
  }

 private:
  void remake() {
    if (buckets_.make) inner_ = buckets_.make(setting_);
  }

  // Seconds of an iteration under each candidate, in the faster of the buckets that run and those that are
  // planned for it; in the buckets that run where others are not chosen.
  [[nodiscard]] std::vector<double> simulated(const Workload& timed, const Link& link,
                                              const Grouping& running) const {
    const int ranks = setting_.group.size();
    const cost::CollectiveTimes times = cost::ring_times(link, ranks);
    const Cluster cluster = flat_cluster({.name = "measured", .link = link}, ranks);
    std::vector<double> seconds;
    for (const std::string& name : candidates_) {
      const Policy& policy = find_policy(name);
      std::vector<Grouping> groupings{running};
      if (buckets_.make) groupings.push_back(group_planned(timed, times, policy.overlap));
      const std::vector<double> each = sim::iteration_seconds(policy, timed, groupings, cluster, times);
      seconds.push_back(*std::min_element(each.begin(), each.end()));
    }
    return seconds;
  }

  [[nodiscard]] std::string sentence(const std::string& chosen, const std::vector<double>& seconds,
                                     const Workload& timed, const Link& link) const {
    double forward = 0;
    double backward = 0;
    for (const Layer& layer : timed.layers) {
      forward += layer.forward_seconds;
      backward += layer.backward_seconds;
    }
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      expected.push_back(fmt::format("{} {}", candidates_[i], format_seconds(seconds[i])));
    return fmt::format(
        "policy {}: with a forward pass of {}, a backward pass of {} and a network of {:.3g} Gb/s an "
        "iteration is expected to "
        "take {}",
        chosen, format_seconds(forward), format_seconds(backward), 8e-9 / link.beta_seconds_per_byte,
        fmt::join(expected, ", "));
  }

  train::ChooserSetting setting_;
  const std::vector<std::string> candidates_;
  const BucketChoice buckets_;
  Workload untimed_;
  std::unique_ptr<train::BucketChooser> inner_;  // null where buckets stay as they are
};

}  // namespace

BucketChoice with_chosen_policy(std::vector<std::string> candidates, BucketChoice buckets) {
  BucketChoice choice{
      .first = buckets.first,
      .text = fmt::format("{}; policy chosen among {}", buckets.text, fmt::join(candidates, ", ")),
      .policies = std::move(candidates)};
  choice.make = [buckets = std::move(buckets)](const train::ChooserSetting& setting) {
    return std::make_unique<ChosenPolicy>(setting, buckets);
  };
  return choice;
}

}  // namespace dear
