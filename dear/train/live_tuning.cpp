#include "dear/train/live_tuning.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/digest.h"
#include "dear/base/error.h"
#include "dear/cluster/cluster.h"
#include "dear/cost/collective_times.h"
#include "dear/fusion/planned.h"
#include "dear/schedule/policy/policy.h"
#include "dear/sim/evaluate.h"
#include "dear/train/control_plane.h"

namespace dear::train {
namespace {

// The first is the one that learned, and the next is not like others either.
constexpr std::int64_t kUnlike = 2;
constexpr int kTrials = 20;          // at most; the budget and what is left to gain end them earlier
constexpr double kPriorError = 0.1;  // of the simulator, beyond what is common to all buckets
constexpr const char* kPlanned = "planned";

// What rank 0 tells the others in each iteration.
struct Decision {
  std::uint64_t candidate = 0;        // that runs from the end of the iteration on
  std::uint32_t measure_network = 0;  // then, by all ranks
  std::uint32_t settled = 0;          // it is the choice
};
static_assert(sizeof(Decision) <= kDecisionBytes);

std::string key_of(const Workload& workload, const std::string& policy, bool one_copy, const Group& group) {
  Digest digest;
  for (const Tensor& tensor : workload.tensors)
    digest.add(fmt::format("{} {} {}\n", tensor.name, tensor.elements, name_of(tensor.dtype)));
  return fmt::format("{} tensors {}, policy {}{}, {} ranks, {}", workload.tensors.size(), digest.hex(),
                     policy, one_copy ? " with one copy" : "", group.size(), group.description());
}

std::optional<std::size_t> find(const SizeCandidates& sizes, const std::string& name) {
  for (std::size_t i = 0; i < sizes.candidates.size(); ++i)
    if (sizes.candidates[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

LiveTuning::LiveTuning(Group group, TuningOptions options, std::string policy, bool one_copy)
    : group_(std::move(group)),
      options_(std::move(options)),
      policy_(std::move(policy)),
      one_copy_(one_copy),
      decision_{.buffer = group_.allocate(kDecisionBytes), .count = kDecisionBytes, .dtype = DType::u8} {
  check_together(group_, [&] {
    static_cast<void>(tune::find_method(options_.method));
    if (!options_.cache.empty() && decides())
      tune::Cache::read(options_.cache).write(options_.cache);  // what cannot be kept is refused now
  });
}

Fusion LiveTuning::start(const Workload& workload) {
  workload_ = workload;
  report_.sizes = size_candidates(workload);
  if (options_.cache.empty()) return options_.start;
  key_ = key_of(workload, policy_, one_copy_, group_);
  std::vector<std::int64_t> planned;  // its buckets by tensor, and the bytes of chunks by bucket
  check_together(group_, [&] {
    if (!decides()) return;
    const tune::Cache all = tune::Cache::read(options_.cache);
    if (const tune::Learned* const mine = all.find(key_)) learned_ = *mine;
    if (learned_.planned.empty()) return;
    const Grouping grouping = group(workload_, ByName{.buckets = learned_.planned,
                                                      .chunk_bytes = learned_.planned_chunk_bytes,
                                                      .source = options_.cache});
    for (TensorId tensor = 0; tensor < workload_.tensors.size(); ++tensor)
      planned.push_back(grouping.bucket_of(tensor));
    for (const Bucket& bucket : grouping.buckets()) planned.push_back(bucket.chunk_bytes);
  });
  planned = of_rank_0(group_, Subject::cached_buckets, planned);
  if (!planned.empty()) {
    std::vector<Bucket> buckets(planned.size() - workload_.tensors.size());
    for (TensorId tensor = 0; tensor < workload_.tensors.size(); ++tensor)
      buckets.at(static_cast<std::size_t>(planned[tensor])).tensors.push_back(tensor);
    for (std::size_t i = 0; i < buckets.size(); ++i)
      buckets[i].chunk_bytes = planned[workload_.tensors.size() + i];
    add_grouping(report_.sizes, kPlanned, Grouping(workload_, std::move(buckets)));
  }
  const std::size_t none = report_.sizes.candidates.size();
  const std::uint64_t choice = first_of_rank_0(find(report_.sizes, learned_.choice).value_or(none));
  return choice == none ? options_.start : fusion_of(choice);
}

std::size_t LiveTuning::first_of_rank_0(std::size_t candidate) const {
  return of_rank_0(group_, Subject::first_buckets, std::vector<std::uint64_t>{candidate}).front();
}

Fusion LiveTuning::begin(const Workload& timed, const Link& link, const Grouping& running) {
  if (!find(report_.sizes, kPlanned)) {
    const cost::CollectiveTimes times = cost::ring_times(link, group_.size());
    add_grouping(report_.sizes, kPlanned, group_planned(timed, times, find_policy(policy_).overlap));
  }
  report_.running = add_grouping(report_.sizes, "start", running);
  predict(timed, link);
  if (decides()) {
    tune::SessionOptions session{
        .method = options_.method,
        .tuner = {.trials = kTrials, .prior = {.seconds = report_.predicted, .error = kPriorError}},
        .budget_iterations = options_.budget_iterations,
        .told_after_drift = true};
    for (const tune::Learned::Measured& measured : learned_.measured)
      if (const std::optional<std::size_t> candidate = find(report_.sizes, measured.candidate))
        session.learned.push_back({.candidate = *candidate, .seconds = measured.seconds});
    session_ = std::make_unique<tune::Session>(report_.sizes.candidates, report_.running, std::move(session));
    for (const double seconds : first_iterations_)
      if (session_->state() == tune::State::baseline) session_->iteration(seconds);
    update_report();
  }
  tunes_ = true;
  report_.running = first_of_rank_0(decides() ? session_->current() : 0);
  decide();
  return fusion_of(report_.running);
}

void LiveTuning::predict(const Workload& timed, const Link& link) {
  report_.networks.push_back({.at_iteration = iterations_, .link = link});
  if (!decides()) return;
  report_.predicted = sim::iteration_seconds(find_policy(policy_), timed, report_.sizes.groupings,
                                             flat_cluster({.name = "measured", .link = link}, group_.size()),
                                             cost::ring_times(link, group_.size()));
}

void LiveTuning::network_measured(const Workload& timed, const Link& link, double begin_seconds,
                                  double end_seconds) {
  predict(timed, link);
  changed(begin_seconds, end_seconds);
  if (!session_) return;
  network_asked_ = false;
  session_->expect({.seconds = report_.predicted, .error = kPriorError});
  heard();
}

void LiveTuning::changed(double begin_seconds, double end_seconds) {
  if (session_) session_->paid(end_seconds - begin_seconds);
  report_.paid_seconds += end_seconds - begin_seconds;
  iteration_began_ = end_seconds;
}

LiveTuning::Wanted LiveTuning::iteration_ended(double now_seconds) {
  ++iterations_;
  const std::optional<double> began = std::exchange(iteration_began_, now_seconds);
  const bool paused = std::exchange(synchronized_, false);
  const bool measured = began && (!paused || synchronized_before_);  // see [Note: pauses]
  synchronized_before_ = paused;
  if (!tunes_) {
    if (measured && iterations_ > kUnlike) first_iterations_.push_back(now_seconds - *began);
    return {};
  }
  if (measured) look(now_seconds - *began);
  Decision decided;
  std::memcpy(&decided, decision_.buffer.data(), sizeof decided);
  Wanted wanted{.fusion = std::nullopt, .measured_network = decided.measure_network != 0};
  report_.settled = decided.settled != 0;
  if (decided.candidate != report_.running) {
    report_.running = decided.candidate;
    wanted.fusion = fusion_of(report_.running);
  }
  decide();
  return wanted;
}

// What was decided already and is not in force yet ends what would be measured.
void LiveTuning::look(double seconds) {
  if (!session_ || session_->current() != report_.running) return;
  session_->iteration(seconds);
  heard();
}

void LiveTuning::heard() {
  if (session_->trials().size() > report_.trials.size()) update_report();
  if (session_->settled() && !kept_) keep();
  kept_ = session_->settled();
}

void LiveTuning::decide() {
  if (!decides()) return;
  const bool ask = session_->waits() && !network_asked_;
  if (ask) network_asked_ = true;
  const Decision decided{.candidate = session_->current(),
                         .measure_network = ask,
                         .settled = session_->settled() && session_->current() == report_.running};
  std::memcpy(decision_.buffer.data(), &decided, sizeof decided);
}

// A session counts what it is told, and this the steps of training.
void LiveTuning::update_report() {
  for (std::size_t i = report_.trials.size(); i < session_->trials().size(); ++i) {
    tune::Trial trial = session_->trials()[i];
    trial.at_iteration = trial.state == tune::State::baseline ? kUnlike : iterations_ - trial.iterations;
    report_.trials.push_back(trial);
  }
  report_.expectations = session_->expectations();
}

void LiveTuning::keep() {
  if (options_.cache.empty()) return;
  tune::Learned learned{
      .choice = report_.sizes.candidates[session_->current()].name, .measured = {}, .planned = {}};
  for (const tune::Observation& one : session_->learned())
    learned.measured.push_back({report_.sizes.candidates[one.candidate].name, one.seconds});
  if (const std::optional<std::size_t> planned = find(report_.sizes, kPlanned)) {
    ByName names = names_in(workload_, report_.sizes.groupings[*planned]);
    learned.planned = std::move(names.buckets);
    learned.planned_chunk_bytes = std::move(names.chunk_bytes);
  }
  try {
    tune::Cache cache = tune::Cache::read(options_.cache);  // other jobs may have written meanwhile
    cache.put(key_, std::move(learned));
    cache.write(options_.cache);
    report_.cache_error.clear();
  } catch (const Error& error) {
    report_.cache_error = error.what();
  }
}

Fusion LiveTuning::fusion_of(std::size_t candidate) const {
  ByName names = names_in(workload_, report_.sizes.groupings[candidate]);
  names.source = report_.sizes.candidates[candidate].name;
  return Fusion(std::move(names));
}

}  // namespace dear::train
