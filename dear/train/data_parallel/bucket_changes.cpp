#include "dear/train/data_parallel/bucket_changes.h"

#include <utility>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/buckets/measured_link.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/engine/model_schedule.h"
#include "dear/train/streams/collective_times.h"

namespace dear::train {
namespace {

constexpr int kUnlike = 2;  // steps that are not like others: the one that learned, and the one after it
// Steps from one meeting for a decision to the next on a device, while buckets are tried, and afterwards.
constexpr int kTrying = 4, kSettled = 32;

// Rank 0's, to the bit: what is made from it must be the same everywhere.
EngineProfile profile_of_rank_0(const Group& group, const Workload& workload, const Link& link) {
  std::vector<double> mine{workload.update_seconds, link.alpha_seconds, link.beta_seconds_per_byte};
  for (const Layer& layer : workload.layers) mine.push_back(layer.forward_seconds);
  for (const Layer& layer : workload.layers) mine.push_back(layer.backward_seconds);
  const std::vector<double> all = agreement::of_rank_0(group, agreement::Subject::profile, mine);
  const auto forward = all.begin() + 3,
             backward = forward + static_cast<std::ptrdiff_t>(workload.layers.size());
  return {.forward_seconds = {forward, backward},
          .backward_seconds = {backward, all.end()},
          .update_seconds = all[0],
          .link = {.alpha_seconds = all[1], .beta_seconds_per_byte = all[2]}};
}

bool goes_by_a_profile(const std::string& policy) { return find_policy(policy).overlap == Overlap::eager; }

}  // namespace

BucketChanges::BucketChanges(Group group, const DataParallelOptions& options, at::Device device, Clock clock)
    : group_(std::move(group)),
      collectives_(group_.size() > 1 ? options.streams : nullptr),
      device_(device),
      policy_(options.policy),
      choice_(options.buckets),
      one_copy_(options.one_copy),
      profile_steps_(options.profile_steps),
      clock_(std::move(clock)),
      chooser_(make_chooser()) {
  measures_ = chooser_ || goes_by_a_profile(policy_);
  time_on_device();
}

std::unique_ptr<BucketChooser> BucketChanges::make_chooser() const {
  if (!choice_.make) return nullptr;
  return choice_.make({.group = group_,
                       .policy = policy_,
                       .policies = choice_.policies,
                       .one_copy = one_copy_,
                       .device = collectives_ ? collectives_->description() : ""});
}

void BucketChanges::time_on_device() {
  if (!collectives_ || !chooser_) return;
  device_clock_.emplace(device_);
  if (group_.rank() == 0) step_times_.emplace(device_);
}

void BucketChanges::begin_anew(std::int64_t steps) {
  if (chooser_) chooser_ = make_chooser();
  profile_.reset();
  measures_ = chooser_ || goes_by_a_profile(policy_);
  begun_ = steps;
  next_meeting_ = steps;
  time_on_device();
}

Fusion BucketChanges::first(const Workload& workload, const Fusion& given) {
  return chooser_ ? chooser_->start(workload) : given;
}

void BucketChanges::waited() {
  if (chooser_) chooser_->synchronized();
  if (step_times_) step_times_->paused();
}

std::pair<std::string, std::string> BucketChanges::standing() const {
  if (measures_) return {"measuring", ""};
  if (!chooser_) return {"off", ""};
  const BucketChooser::Standing standing = chooser_->standing();
  return {standing.converged ? "settled" : "trying", standing.buckets};
}

void BucketChanges::end_choice() {
  if (!chooser_) return;
  chooser_.reset();
  step_times_.reset();
  measures_ = goes_by_a_profile(policy_) && !profile_;
}

std::optional<BucketChanges::Change> BucketChanges::step_ended(Engine& engine, std::int64_t steps,
                                                               const std::function<Workload()>& measured) {
  if (step_times_ && steps >= begun_ + kUnlike) step_times_->step_ended();
  if (chooser_) {
    if (std::optional<Change> change = wanted(engine, steps)) return change;
  }
  if (!measures_ || steps != begun_ + profile_steps_ + kUnlike) return std::nullopt;
  stop(engine);
  measures_ = false;
  Workload timed = measured();
  if (collectives_ && !device_.is_cpu()) timed.update_seconds = 0;  // the host's for enqueuing them
  device_clock_.reset();
  return first_change(engine, timed);
}

void BucketChanges::stop(Engine& engine) {
  engine.conductor().synchronize();
  if (engine.streams() != nullptr) engine.streams()->synchronize();
}

Link BucketChanges::measure_link(Engine& engine) {
  if (!collectives_) return buckets::measure_link(group_);
  std::vector<std::int64_t> elements = buckets::measured_elements();
  for (std::int64_t& count : elements) count = count / group_.size() * group_.size();
  return buckets::link_of(streams::time_collectives(*collectives_, *engine.streams(), device_, elements),
                          group_.size());
}

BucketChooser::Wanted BucketChanges::wanted_on_device(std::int64_t steps) {
  if (steps < next_meeting_) return {};
  const std::vector<double> seconds = step_times_ ? step_times_->take() : std::vector<double>();
  BucketChooser::Wanted wanted = chooser_->steps_took(seconds, steps);
  next_meeting_ = steps + (profile_ && chooser_->standing().converged ? kSettled : kTrying);
  return wanted;
}

BucketChanges::Change BucketChanges::first_change(Engine& engine, const Workload& measured) {
  profile_ = profile_of_rank_0(group_, measured, measure_link(engine));
  Workload timed = engine.workload();
  add_times(*profile_, timed);
  const double begin = clock_();
  if (!chooser_) return {.fusion = std::nullopt, .why = "plan", .begin_seconds = begin};
  return change_to(chooser_->begin(timed, profile_->link, engine.grouping()), begin);
}

BucketChanges::Change BucketChanges::change_to(NewBuckets buckets, double begin_seconds) {
  if (!buckets.policy.empty()) policy_ = buckets.policy;
  return {.fusion = std::move(buckets.fusion),
          .why = std::move(buckets.why),
          .begin_seconds = begin_seconds,
          .policy = std::move(buckets.policy)};
}

std::optional<BucketChanges::Change> BucketChanges::wanted(Engine& engine, std::int64_t steps) {
  BucketChooser::Wanted wanted;
  if (collectives_) {
    wanted = wanted_on_device(steps);
  } else {
    const double ended = clock_();
    engine.conductor().wait_decision();
    wanted = chooser_->iteration_ended(ended);
  }
  if (!wanted.buckets && !wanted.measured_network) return std::nullopt;
  const double begin = clock_();
  stop(engine);
  if (wanted.measured_network) {
    Workload timed = engine.workload();
    add_times(*profile_, timed);
    profile_ = profile_of_rank_0(group_, timed, measure_link(engine));
    chooser_->network_measured(timed, profile_->link, begin, clock_());
  }
  if (!wanted.buckets) return std::nullopt;
  return change_to(std::move(*wanted.buckets), begin);
}

void BucketChanges::changed(const Change& change) {
  if (step_times_) step_times_->interrupted();
  if (chooser_) chooser_->changed(change.begin_seconds, clock_());
}

}  // namespace dear::train
