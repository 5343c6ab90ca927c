#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/ring.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/tune/observations.h"
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
// One that is expected to take more than this share is tried beside it: the simulator knows nothing of the
// processor time that collectives take from the computation under which they hide.
constexpr double kSurelyLess = 0.75;
constexpr int kUnlikeSteps = 2;  // after a change
constexpr std::size_t kTriedSteps = 12;

// Steps under a policy, and then under wfbp, each in buckets that are planned for it.
struct Trial {
  std::string policy;
  Workload timed;
  Link link;
  Grouping running;
  bool under_wfbp = false, agreed = false;
  int skipped = 0;
  double last = 0;
  std::vector<double> before{}, after{};  // seconds of steps
  double seconds = 0, seconds_of_wfbp = 0;

  // Whether the policy in force has been timed.
  bool step_ended(double now_seconds) {
    std::vector<double>& seconds_of = under_wfbp ? after : before;
    if (skipped++ > kUnlikeSteps) seconds_of.push_back(now_seconds - last);
    last = now_seconds;
    return seconds_of.size() >= kTriedSteps;
  }
};

// Chooses the policy in begin(), by the times of rank 0, tries it beside wfbp, and leaves everything else to
// the chooser of the buckets, if there is one: the same object where the policy stays, a new one of the new
// policy where it changes.
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
    else if (wfbp != candidates_.end() && setting_.device.empty() &&
             seconds[best] > kSurelyLess * seconds[static_cast<std::size_t>(wfbp - candidates_.begin())])
      trial_.emplace(Trial{.policy = chosen, .timed = timed, .link = link, .running = running});
    const std::string why = sentence(chosen, seconds, timed, link);
    return trial_ ? tried(chosen, why + "; wfbp is tried after it")
                  : settled(chosen, timed, link, running, why);
  }

  void changed(double begin_seconds, double end_seconds) override {
    if (inner_ && !trial_) inner_->changed(begin_seconds, end_seconds);
  }
  // Ends a trial after as many steps on every rank. Rank 0 tells the others its times when the network is
  // measured, while no gradients are on their way.
  [[nodiscard]] Wanted iteration_ended(double now_seconds) override {
    if (!trial_) return inner_ ? inner_->iteration_ended(now_seconds) : Wanted{};
    if (trial_->agreed) return {.buckets = best_tried()};
    if (!trial_->step_ended(now_seconds)) return {};
    if (trial_->under_wfbp) return {.measured_network = true};
    trial_->under_wfbp = true;
    trial_->skipped = 0;
    return {.buckets = tried("wfbp", fmt::format("policy wfbp: tried after {}", trial_->policy))};
  }
  [[nodiscard]] Wanted steps_took(const std::vector<double>& seconds, std::int64_t step) override {
    return inner_ ? inner_->steps_took(seconds, step) : Wanted{};
  }
  void network_measured(const Workload& timed, const Link& link, double begin_seconds,
                        double end_seconds) override {
    if (!trial_) {
      if (inner_) inner_->network_measured(timed, link, begin_seconds, end_seconds);
      return;
    }
    const std::vector<double> mine{tune::median(trial_->before), tune::median(trial_->after)};
    const std::vector<double> medians =
        agreement::of_rank_0(setting_.group, agreement::Subject::profile, mine);
    trial_->seconds = medians[0];
    trial_->seconds_of_wfbp = medians[1];
    trial_->timed = timed;
    trial_->link = link;
    trial_->agreed = true;
  }
  void synchronized() override {
    if (trial_) trial_->skipped = std::min(trial_->skipped, kUnlikeSteps);
    if (inner_ && !trial_) inner_->synchronized();
  }
  [[nodiscard]] View decision() const override { return inner_ && !trial_ ? inner_->decision() : View{}; }
  [[nodiscard]] Standing standing() const override {
    if (trial_) return {.converged = false, .buckets = "planned"};
    return inner_ ? inner_->standing() : Standing{.converged = true, .buckets = "given"};
  }
  [[nodiscard]] const TuningProgress* progress() const override {
    return inner_ ? inner_->progress() : nullptr;
  }

 private:
  void remake() {
    if (buckets_.make) inner_ = buckets_.make(setting_);
  }

  [[nodiscard]] train::NewBuckets settled(const std::string& policy, const Workload& timed, const Link& link,
                                          const Grouping& running, const std::string& why) {
    if (policy != setting_.policy) {
      setting_.policy = policy;
      remake();
      if (inner_) static_cast<void>(inner_->start(untimed_));
    }
    train::NewBuckets next =
        inner_ ? inner_->begin(timed, link, running) : train::NewBuckets{.fusion = buckets_.first, .why = ""};
    next.policy = policy;
    next.why = why;
    return next;
  }

  [[nodiscard]] train::NewBuckets tried(const std::string& policy, const std::string& why) {
    train::NewBuckets next{.fusion = buckets_.first, .why = why, .policy = policy};
    if (!buckets_.make) return next;
    train::ChooserSetting setting = setting_;
    setting.policy = policy;
    const auto planner = planned(buckets_.first).make(setting);
    static_cast<void>(planner->start(untimed_));
    next.fusion = planner->begin(trial_->timed, trial_->link, trial_->running).fusion;
    trial_->running = next.fusion(trial_->timed);
    return next;
  }

  [[nodiscard]] train::NewBuckets best_tried() {
    const Trial trial = *std::exchange(trial_, std::nullopt);
    const bool is_wfbp = trial.seconds_of_wfbp <= trial.seconds;
    const std::string chosen = is_wfbp ? "wfbp" : trial.policy;
    return settled(
        chosen, trial.timed, trial.link, trial.running,
        fmt::format("policy {}: a step took {} under {}, and {} under wfbp", chosen,
                    format_seconds(trial.seconds), trial.policy, format_seconds(trial.seconds_of_wfbp)));
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
  std::optional<Trial> trial_;
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
