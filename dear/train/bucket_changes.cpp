#include "dear/train/bucket_changes.h"

#include <utility>

#include "dear/base/error.h"
#include "dear/schedule/policy/policy.h"
#include "dear/train/control_plane.h"
#include "dear/wire/measured_link.h"

namespace dear::train {
namespace {

constexpr int kUnlike = 2;  // steps that are not like others: the one that learned, and the one after it

// Rank 0's, to the bit: what is made from it must be the same everywhere.
Engine::Profile profile_of_rank_0(const Group& group, const Workload& workload, const Link& link) {
  std::vector<double> mine{workload.update_seconds, link.alpha_seconds, link.beta_seconds_per_byte};
  for (const Layer& layer : workload.layers) mine.push_back(layer.forward_seconds);
  for (const Layer& layer : workload.layers) mine.push_back(layer.backward_seconds);
  const std::vector<double> all = of_rank_0(group, Subject::profile, mine);
  const auto forward = all.begin() + 3,
             backward = forward + static_cast<std::ptrdiff_t>(workload.layers.size());
  return {.forward_seconds = {forward, backward},
          .backward_seconds = {backward, all.end()},
          .update_seconds = all[0],
          .link = {.alpha_seconds = all[1], .beta_seconds_per_byte = all[2]}};
}

bool goes_by_a_profile(const std::string& policy) { return find_policy(policy).overlap == Overlap::eager; }

}  // namespace

BucketChanges::BucketChanges(Group group, const DataParallelOptions& options, Clock clock)
    : group_(std::move(group)),
      policy_(options.policy),
      choice_(options.buckets),
      one_copy_(options.one_copy),
      profile_steps_(options.profile_steps),
      clock_(std::move(clock)),
      chooser_(make_chooser()) {
  measures_ = chooser_ || goes_by_a_profile(policy_);
}

std::unique_ptr<BucketChooser> BucketChanges::make_chooser() const {
  return choice_.make ? choice_.make({.group = group_, .policy = policy_, .one_copy = one_copy_}) : nullptr;
}

void BucketChanges::begin_anew(std::int64_t steps) {
  if (chooser_) chooser_ = make_chooser();
  profile_.reset();
  measures_ = chooser_ || goes_by_a_profile(policy_);
  begun_ = steps;
}

Fusion BucketChanges::first(const Workload& workload, const Fusion& given) {
  return chooser_ ? chooser_->start(workload) : given;
}

void BucketChanges::waited() {
  if (chooser_) chooser_->synchronized();
}

std::pair<std::string, std::string> BucketChanges::standing() const {
  if (measures_) return {"measuring", ""};
  if (!chooser_) return {"off", ""};
  const BucketChooser::Standing standing = chooser_->standing();
  return {standing.settled ? "settled" : "trying", standing.buckets};
}

void BucketChanges::end_choice() {
  if (!chooser_) return;
  chooser_.reset();
  measures_ = goes_by_a_profile(policy_) && !profile_;
}

std::optional<BucketChanges::Change> BucketChanges::step_ended(Engine& engine, std::int64_t steps,
                                                               const std::function<Workload()>& measured) {
  if (chooser_) {
    if (std::optional<Change> change = wanted(engine)) return change;
  }
  if (!measures_ || steps != begun_ + profile_steps_ + kUnlike) return std::nullopt;
  engine.conductor().synchronize();
  measures_ = false;
  return first_change(engine, measured());
}

BucketChanges::Change BucketChanges::first_change(Engine& engine, const Workload& measured) {
  profile_ = profile_of_rank_0(group_, measured, wire::measure_link(group_));
  Workload timed = engine.workload();
  Engine::add_times(*profile_, timed);
  const double begin = clock_();
  if (!chooser_) return {.fusion = std::nullopt, .why = "plan", .begin_seconds = begin};
  NewBuckets buckets = chooser_->begin(timed, profile_->link, engine.grouping());
  return {.fusion = std::move(buckets.fusion), .why = std::move(buckets.why), .begin_seconds = begin};
}

std::optional<BucketChanges::Change> BucketChanges::wanted(Engine& engine) {
  const double ended = clock_();
  engine.conductor().wait_decision();
  BucketChooser::Wanted wanted = chooser_->iteration_ended(ended);
  if (!wanted.buckets && !wanted.measured_network) return std::nullopt;
  const double begin = clock_();
  engine.conductor().synchronize();
  if (wanted.measured_network) {
    Workload timed = engine.workload();
    Engine::add_times(*profile_, timed);
    profile_ = profile_of_rank_0(group_, timed, wire::measure_link(group_));
    chooser_->network_measured(timed, profile_->link, begin, clock_());
  }
  if (!wanted.buckets) return std::nullopt;
  return Change{.fusion = std::move(wanted.buckets->fusion),
                .why = std::move(wanted.buckets->why),
                .begin_seconds = begin};
}

void BucketChanges::changed(const Change& change) {
  if (chooser_) chooser_->changed(change.begin_seconds, clock_());
}

}  // namespace dear::train
