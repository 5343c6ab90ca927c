#include "dear/train/tuning/live_tuning.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/planned.h"
#include "dear/schedule/policies/policy.h"

namespace dear::tuning {
namespace {

// Steps at the beginning of training that take other times than later ones: the step that learns the order of
// layers, and the step after it.
constexpr std::int64_t kUnlike = 2;
constexpr int kTrials = 20;  // at most; the budget, or too little left to gain, ends trials earlier
constexpr double kPriorError =
    0.1;  // error of the simulator, beyond a factor that all buckets have in common
constexpr const char* kPlanned = "planned";

// What rank 0 tells the others in each iteration.
struct Decision {
  std::uint64_t candidate = 0;        // runs from the end of the iteration on
  std::uint32_t measure_network = 0;  // 1: all ranks measure the network at the end of the iteration
  std::uint32_t converged = 0;        // 1: the candidate is the choice
};
static_assert(sizeof(Decision) <= kDecisionBytes);

std::string key_of(const Workload& workload, const train::ChooserSetting& setting) {
  Digest digest;
  for (const Tensor& tensor : workload.tensors)
    digest.add(fmt::format("{} {} {}\n", tensor.name, tensor.elements, name_of(tensor.dtype)));
  return fmt::format("{} tensors {}, policy {}{}, {} ranks, {}", workload.tensors.size(), digest.hex(),
                     setting.policy, setting.one_copy ? " with one copy" : "", setting.group.size(),
                     setting.device.empty() ? setting.group.description() : setting.device);
}

std::optional<std::size_t> find(const SizeCandidates& sizes, const std::string& name) {
  for (std::size_t i = 0; i < sizes.candidates.size(); ++i)
    if (sizes.candidates[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

LiveTuning::LiveTuning(const train::ChooserSetting& setting, TuningOptions options)
    : setting_(setting),
      options_(std::move(options)),
      decision_{
          .buffer = setting_.group.allocate(kDecisionBytes), .count = kDecisionBytes, .dtype = DType::u8} {
  agreement::check_together(setting_.group, [&] {
    static_cast<void>(tune::find_method(options_.method));
    if (!options_.cache.empty() && decides())
      tune::Cache::read(options_.cache)
          .write(options_.cache);  // a file that cannot be written is refused now
  });
}

Fusion LiveTuning::start(const Workload& workload) {
  workload_ = workload;
  progress_.sizes = size_candidates(workload);
  if (options_.cache.empty()) return options_.start;
  key_ = key_of(workload, setting_);
  std::vector<std::int64_t> planned;  // bucket by tensor, then bytes of chunks by bucket
  agreement::check_together(setting_.group, [&] {
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
  planned = agreement::of_rank_0(setting_.group, agreement::Subject::cached_buckets, planned);
  if (!planned.empty()) {
    std::vector<Bucket> buckets(planned.size() - workload_.tensors.size());
    for (TensorId tensor = 0; tensor < workload_.tensors.size(); ++tensor)
      buckets.at(static_cast<std::size_t>(planned[tensor])).tensors.push_back(tensor);
    for (std::size_t i = 0; i < buckets.size(); ++i)
      buckets[i].chunk_bytes = planned[workload_.tensors.size() + i];
    add_grouping(progress_.sizes, kPlanned, Grouping(workload_, std::move(buckets)));
  }
  const std::size_t none = progress_.sizes.candidates.size();
  const std::uint64_t choice = first_of_rank_0(find(progress_.sizes, learned_.choice).value_or(none));
  return choice == none ? options_.start : fusion_of(choice);
}

std::size_t LiveTuning::first_of_rank_0(std::size_t candidate) const {
  return agreement::of_rank_0(setting_.group, agreement::Subject::first_buckets,
                              std::vector<std::uint64_t>{candidate})
      .front();
}

train::NewBuckets LiveTuning::begin(const Workload& timed, const Link& link, const Grouping& running) {
  if (!find(progress_.sizes, kPlanned)) {
    const cost::CollectiveTimes times = cost::ring_times(link, setting_.group.size());
    add_grouping(progress_.sizes, kPlanned,
                 group_planned(timed, times, find_policy(setting_.policy).overlap));
  }
  progress_.running = add_grouping(progress_.sizes, "start", running);
  predict(timed, link);
  if (decides()) {
    tune::SessionOptions session{
        .method = options_.method,
        .tuner = {.trials = kTrials, .prior = {.seconds = progress_.predicted, .error = kPriorError}},
        .budget_iterations = options_.budget_iterations,
        .told_after_drift = true};
    for (const tune::Learned::Measured& measured : learned_.measured)
      if (const std::optional<std::size_t> candidate = find(progress_.sizes, measured.candidate))
        session.learned.push_back({.candidate = *candidate, .seconds = measured.seconds});
    session_ =
        std::make_unique<tune::Session>(progress_.sizes.candidates, progress_.running, std::move(session));
    for (const double seconds : first_iterations_)
      if (session_->state() == tune::State::baseline) session_->iteration(seconds);
    update_progress();
  }
  tunes_ = true;
  progress_.running = first_of_rank_0(decides() ? session_->current() : 0);
  decide();
  return change_to(progress_.running);
}

void LiveTuning::predict(const Workload& timed, const Link& link) {
  progress_.networks.push_back({.at_iteration = iterations_, .link = link});
  if (!decides()) return;
  progress_.predicted =
      sim::iteration_seconds(find_policy(setting_.policy), timed, progress_.sizes.groupings,
                             flat_cluster({.name = "measured", .link = link}, setting_.group.size()),
                             cost::ring_times(link, setting_.group.size()));
}

void LiveTuning::network_measured(const Workload& timed, const Link& link, double begin_seconds,
                                  double end_seconds) {
  predict(timed, link);
  changed(begin_seconds, end_seconds);
  if (!session_) return;
  network_asked_ = false;
  session_->expect({.seconds = progress_.predicted, .error = kPriorError});
  heard();
}

void LiveTuning::changed(double begin_seconds, double end_seconds) {
  if (session_) session_->paid(end_seconds - begin_seconds);
  progress_.paid_seconds += end_seconds - begin_seconds;
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
  Wanted wanted = follow();
  decide();
  return wanted;
}

LiveTuning::Wanted LiveTuning::follow() {
  Decision decided;
  std::memcpy(&decided, decision_.buffer.data(), sizeof decided);
  Wanted wanted{.measured_network = decided.measure_network != 0};
  progress_.converged = decided.converged != 0;
  if (decided.candidate == progress_.running) return wanted;
  progress_.running = decided.candidate;
  wanted.buckets = change_to(progress_.running);
  return wanted;
}

// See [Note: tuning on a device].
LiveTuning::Wanted LiveTuning::steps_took(const std::vector<double>& seconds, std::int64_t step) {
  iterations_ = step;
  if (!tunes_) {
    first_iterations_.insert(first_iterations_.end(), seconds.begin(), seconds.end());
    return {};
  }
  for (const double one : seconds) look(one);
  decide();
  std::vector<std::byte> mine(sizeof(Decision));
  std::memcpy(mine.data(), decision_.buffer.data(), mine.size());
  const std::vector<std::byte> decided =
      agreement::of_rank_0(setting_.group, agreement::Subject::decision, mine);
  std::memcpy(decision_.buffer.data(), decided.data(), decided.size());
  return follow();
}

// An iteration in buckets that rank 0 has decided to leave is no measurement.
void LiveTuning::look(double seconds) {
  if (!session_ || session_->current() != progress_.running) return;
  session_->iteration(seconds);
  heard();
}

void LiveTuning::heard() {
  if (session_->trials().size() > progress_.trials.size()) update_progress();
  if (session_->converged() && !kept_) keep();
  kept_ = session_->converged();
}

void LiveTuning::decide() {
  if (!decides()) return;
  const bool ask = session_->waits() && !network_asked_;
  if (ask) network_asked_ = true;
  const Decision decided{.candidate = session_->current(),
                         .measure_network = ask,
                         .converged = session_->converged() && session_->current() == progress_.running};
  std::memcpy(decision_.buffer.data(), &decided, sizeof decided);
}

// A session counts the iterations that it was told of; the progress counts the steps of training.
train::BucketChooser::Standing LiveTuning::standing() const {
  return {.converged = progress_.converged, .buckets = progress_.sizes.candidates.at(progress_.running).name};
}

void LiveTuning::update_progress() {
  for (std::size_t i = progress_.trials.size(); i < session_->trials().size(); ++i) {
    tune::Trial trial = session_->trials()[i];
    trial.at_iteration = trial.state == tune::State::baseline ? kUnlike : iterations_ - trial.iterations;
    progress_.trials.push_back(trial);
  }
  progress_.expectations = session_->expectations();
}

void LiveTuning::keep() {
  if (options_.cache.empty()) return;
  tune::Learned learned{
      .choice = progress_.sizes.candidates[session_->current()].name, .measured = {}, .planned = {}};
  for (const tune::Observation& one : session_->learned())
    learned.measured.push_back({progress_.sizes.candidates[one.candidate].name, one.seconds});
  if (const std::optional<std::size_t> planned = find(progress_.sizes, kPlanned)) {
    ByName names = names_in(workload_, progress_.sizes.groupings[*planned]);
    learned.planned = std::move(names.buckets);
    learned.planned_chunk_bytes = std::move(names.chunk_bytes);
  }
  try {
    tune::Cache cache = tune::Cache::read(options_.cache);  // other jobs may have written meanwhile
    cache.put(key_, std::move(learned));
    cache.write(options_.cache);
    progress_.cache_error.clear();
  } catch (const Error& error) {
    progress_.cache_error = error.what();
  }
}

Fusion LiveTuning::fusion_of(std::size_t candidate) const {
  ByName names = names_in(workload_, progress_.sizes.groupings[candidate]);
  names.source = progress_.sizes.candidates[candidate].name;
  return Fusion(std::move(names));
}

train::NewBuckets LiveTuning::change_to(std::size_t candidate) const {
  Fusion fusion = fusion_of(candidate);
  std::string why = "tune: fusion " + fusion.text();
  return {.fusion = std::move(fusion), .why = std::move(why)};
}

}  // namespace dear::tuning
