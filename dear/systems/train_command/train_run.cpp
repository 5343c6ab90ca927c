#include "dear/systems/train_command/train_run.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/policy.h"
#include "dear/systems/kfac/kfac.h"
#include "dear/systems/train_command/gpt.h"
#include "dear/systems/train_command/make_optimizer.h"
#include "dear/systems/train_command/moe_training.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/stop_on_signal.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/watch.h"
#include "dear/train/tuning/rule_choice.h"
#include "dear/train/tuning/tuning_progress.h"

namespace dear::train_command {
namespace {

GptOptions gpt_options(const TrainSettings& settings, const Corpus& corpus) {
  return {.vocabulary = static_cast<std::int64_t>(corpus.vocabulary.size()),
          .context = settings.job.context,
          .layers = settings.job.layers,
          .width = settings.job.width,
          .heads = settings.job.heads,
          .seed = settings.job.seed};
}

std::vector<double> mean_over_ranks(Group group, const std::vector<double>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(double));
  const Buffer buffer = group.allocate(bytes);
  std::memcpy(buffer.data(), values.data(), static_cast<std::size_t>(bytes));
  group
      .all_reduce({.buffer = buffer, .count = static_cast<std::int64_t>(values.size()), .dtype = DType::f64},
                  Reduction::average)
      .wait();
  std::vector<double> mean(values.size());
  std::memcpy(mean.data(), buffer.data(), static_cast<std::size_t>(bytes));
  return mean;
}

std::string network_of(const Group& group) {
  const std::string modelled = group.modelled_network();
  return modelled.empty() ? "" : "modelled: " + modelled;
}

std::string name_of(const TrainSettings& settings) {
  return fmt::format("{}gpt of {} layers, width {}, batch {}", settings.moe ? "moe-" : "",
                     settings.job.layers, settings.job.width, settings.job.batch);
}

TuningReport report_of(const TuningProgress& tuning, const TrainResult& run) {
  TuningReport report{.model = "",
                      .cluster = "",
                      .ranks = run.workers,
                      .policy = run.policy,
                      .method = TuningOptions().method,
                      .where = "training",
                      .sizes = tuning.sizes,
                      .choice = tuning.running,
                      .settled = tuning.converged,
                      .remark = tuning.cache_error,
                      .expectations = tuning.expectations};
  for (const tune::Trial& trial : tuning.trials)
    report.trials.push_back({.candidate = trial.candidate, .seconds = trial.seconds});
  return report;
}

std::string sample_text(Gpt model, const Corpus& corpus, std::int64_t count, std::uint64_t seed) {
  // The sample begins with the end of a line where the corpus has lines, so that the model writes the start
  // of one.
  const std::size_t newline = corpus.vocabulary.find('\n');
  const std::int64_t start = newline == std::string::npos ? 0 : static_cast<std::int64_t>(newline);
  std::string text;
  for (const std::int64_t character : generate(std::move(model), {start}, count, seed)) {
    text.push_back(corpus.vocabulary[static_cast<std::size_t>(character)]);
  }
  return text;
}

// Every rank calls it.
KfacTroubles troubles_of(const KfacReport& report, const Group& group) {
  KfacTroubles most;
  for (const KfacTroubles& one :
       comm::all_gather_values(group, KfacTroubles{.given_up_inverses = report.given_up_inverses,
                                                   .nonfinite_factors = report.nonfinite_factors,
                                                   .raised_dampings = report.raised_dampings})) {
    most.given_up_inverses = std::max(most.given_up_inverses, one.given_up_inverses);
    most.nonfinite_factors = std::max(most.nonfinite_factors, one.nonfinite_factors);
    most.raised_dampings = std::max(most.raised_dampings, one.raised_dampings);
  }
  return most;
}

class Job : public TrainingJob {
 public:
  Job(const TrainSettings& settings, TrainRun run, const Corpus& corpus, const Group& group);
  void advance(std::int64_t steps, const StepListener& listener) override;
  bool interrupted() override { return stop_->requested() && stop_->signal() == SIGINT; }
  TrainResult end() override;

 private:
  [[nodiscard]] double take_step();       // the loss
  [[nodiscard]] double exposed() const {  // seconds so far
    return parallel_.statistics().exposed_seconds + (kfac_ ? kfac_->report().waited_seconds : 0) +
           (moe_ ? moe_->waited_seconds() : 0);
  }
  void begin_saving();
  void save(std::int64_t step);
  void save_last();
  [[nodiscard]] bool written();
  [[nodiscard]] std::int64_t steps_taken() const {
    return resumed_at_ + static_cast<std::int64_t>(losses_.size());
  }
  void take_record(TrainResult& result);
  [[nodiscard]] SentGradients sent(std::int64_t steps);

  const TrainSettings& settings_;
  const TrainRun run_;
  const Corpus& corpus_;
  const Group group_;
  Gpt model_{nullptr};              // without mixtures of experts
  std::optional<MoeTraining> moe_;  // with them
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  DataParallel parallel_;
  std::optional<Kfac> kfac_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<StopOnSignal> stop_;
  std::int64_t resumed_at_ = 0, saved_at_ = -1;  // steps
  std::string unsaved_;                          // see TrainResult
  std::vector<double> losses_, iteration_seconds_, exposed_seconds_;
};

// This program does nothing between backward and step(), so that "auto" has dear-eager among its candidates
// where the optimiser updates element by element, and gradients travel whole.
std::string policy_of(const TrainSettings& settings, const TrainRun& run) {
  const bool whole = settings.kfac || settings.optimizer == "lamb" || settings.optimizer == "lars";
  if (run.policy != "auto" || whole || run.compression || settings.moe) return run.policy;
  return settings.job.one_copy ? "auto=dear,dear-eager" : "auto=dear,wfbp,dear-eager";
}

DataParallelOptions parallel_options(const TrainSettings& settings, const TrainRun& run) {
  return {.policy = policy_of(settings, run),
          .buckets = choice_of(settings.buckets, settings.tuning_cache, policy_of(settings, run)),
          .one_copy = settings.job.one_copy,
          .compression = run.compression,
          .verify_every = static_cast<int>(settings.job.verify),
          .record_trace = run.record_trace,
          .say = run.say};
}

KfacOptions kfac_options(const KfacJob& job) {
  return {.strategy = job.strategy,
          .damping = job.damping,
          .pi_correction = job.pi_correction,
          .ema = job.ema,
          .kl_clip = job.kl_clip,
          .factor_every = job.factor_every,
          .inverse_every = job.inverse_every,
          .exclude = job.exclude};
}

CheckpointPart part_of(Kfac& kfac) {
  return {.name = "kfac",
          .save = [&kfac] { return kfac.state(); },
          .load = [&kfac](const std::map<std::string, torch::Tensor>& saved) { kfac.load_state(saved); }};
}

Gpt dense_gpt(const TrainSettings& settings, const Corpus& corpus) {
  return settings.moe ? Gpt(nullptr) : Gpt(gpt_options(settings, corpus));
}

std::optional<MoeTraining> moe_training(const TrainSettings& settings, const Corpus& corpus,
                                        const Group& group, const TrainRun& run) {
  if (!settings.moe) return std::nullopt;
  return std::optional<MoeTraining>(std::in_place, settings, gpt_options(settings, corpus), group,
                                    run.record_trace);
}

Job::Job(const TrainSettings& settings, TrainRun run, const Corpus& corpus, const Group& group)
    : settings_(settings),
      run_(std::move(run)),
      corpus_(corpus),
      group_(group),
      model_(dense_gpt(settings, corpus)),
      moe_(moe_training(settings, corpus, group, run_)),
      optimizer_(make_optimizer(settings.kfac ? "sgd" : settings.optimizer,
                                moe_ ? moe_->dense_parameters() : model_->parameters(),
                                settings.learning_rate)),
      parallel_(moe_ ? moe_->dense() : live_model_of(*model_), dear::make_optimizer(*optimizer_), group_,
                parallel_options(settings, run_)) {
  if (settings.kfac) kfac_.emplace(*model_, parallel_, kfac_options(*settings.kfac));
  if (!settings.metrics.empty()) parallel_.watch().write_metrics(settings.metrics);
  const bool saves = !settings_.saving.directory.empty();
  stop_.emplace(group_, StopOnSignal::Options{.signal = SIGINT, .also = saves ? SIGTERM : 0});
  if (saves) begin_saving();
}

void Job::begin_saving() {
  const Saving& saving = settings_.saving;
  checkpoints_.emplace(parallel_, CheckpointsOptions{.directory = saving.directory,
                                                     .keep = saving.keep,
                                                     .asynchronous = true,
                                                     .parts = kfac_ ? std::vector{part_of(*kfac_)}
                                                                    : std::vector<CheckpointPart>(),
                                                     .say = run_.say});
  if (!saving.resume) return;
  const std::optional<Position> position = checkpoints_->resume();
  resumed_at_ = position ? position->step : 0;
  if (run_.say && group_.rank() == 0)
    run_.say(position ? fmt::format("resumed at step {} from {}", resumed_at_, saving.directory)
                      : fmt::format("{} has no checkpoint: training begins at step 0", saving.directory));
  if (resumed_at_ >= settings_.job.steps)
    throw ConfigError(
        fmt::format("the checkpoint in {} is of step {}, and {} steps were asked for: ask for more",
                    saving.directory, resumed_at_, settings_.job.steps));
}

// A checkpoint that cannot be written ends no training.
void Job::save(std::int64_t step) {
  static_cast<void>(written());
  try {
    checkpoints_->save({.step = step});
    saved_at_ = step;
  } catch (const ConfigError& error) {
    if (run_.say && group_.rank() == 0) run_.say(error.what());
  }
}

// The last one is what the run was for: where it fails, the run has failed, once its results are written.
void Job::save_last() {
  const std::int64_t step = steps_taken();
  const bool there = written() && saved_at_ == step;
  try {
    if (!there) {
      checkpoints_->save({.step = step});
      checkpoints_->wait();
    }
  } catch (const ConfigError& error) {
    unsaved_ = error.what();
    return;
  }
  if (run_.say && group_.rank() == 0)
    run_.say(fmt::format("saved step {} in {}", step, settings_.saving.directory));
}

// Whether all that was saved so far is on the disk.
bool Job::written() {
  try {
    checkpoints_->wait();
    return true;
  } catch (const ConfigError& error) {
    if (run_.say && group_.rank() == 0) run_.say(error.what());
    return false;
  }
}

double Job::take_step() {
  const torch::Tensor batch = samples_of(corpus_,
                                         {.seed = settings_.job.seed,
                                          .step = steps_taken(),
                                          .first = group_.rank() * settings_.job.batch,
                                          .count = settings_.job.batch},
                                         settings_.job.context);
  const torch::Tensor input = batch.slice(1, 0, settings_.job.context);
  const torch::Tensor logits = moe_ ? moe_->model()->forward(input) : model_->forward(input);
  torch::Tensor loss = cross_entropy(logits, batch.slice(1, 1));
  const auto value = loss.item<double>();
  (moe_ ? moe_->with_balance(loss) : loss).backward();
  if (kfac_) kfac_->step();
  parallel_.step();
  if (moe_) moe_->step();
  return value;
}

void Job::advance(std::int64_t steps, const StepListener& listener) {
  // The time that synchronize() below waits belongs to no iteration.
  double exposed_before = exposed();
  double previous = now_seconds();
  for (std::int64_t i = resumed_at_; i < steps; ++i) {
    losses_.push_back(take_step());
    const double now = now_seconds();
    const double waited = exposed();
    iteration_seconds_.push_back(now - std::exchange(previous, now));
    exposed_seconds_.push_back(waited - std::exchange(exposed_before, waited));
    if (listener) listener(static_cast<std::int64_t>(losses_.size()), losses_.back());
    if (run_.until_converged && parallel_.tuning() && parallel_.tuning()->converged) break;
    if (checkpoints_ && steps_taken() % settings_.saving.every == 0) save(steps_taken());
    if (!run_.counted.empty() || !stop_->requested()) continue;
    if (checkpoints_ && run_.say && group_.rank() == 0)
      run_.say(fmt::format("{} came: saving after step {}, and ending",
                           stop_->signal() == SIGINT ? "SIGINT" : "SIGTERM", steps_taken()));
    break;
  }
  if (checkpoints_) save_last();
  parallel_.synchronize();
}

SentGradients Job::sent(std::int64_t steps) {
  const double ranks = group_.size();
  const double dense = 2 * (ranks - 1) / ranks * static_cast<double>(parallel_.statistics().parameter_bytes);
  SentGradients sent{.compression = text_of(run_.compression), .bytes = dense, .dense_bytes = dense};
  if (!run_.compression) return sent;
  const CompressionReport report = parallel_.compression_report();
  sent.bytes = report.bytes / static_cast<double>(steps);
  sent.dense_bytes = report.dense_bytes / static_cast<double>(steps);
  sent.residual_norm = report.residual_norm;
  sent.dense_exchanges = report.dense_exchanges;
  sent.not_finite = report.not_finite;
  return sent;
}

void Job::take_record(TrainResult& result) {
  result.trace = parallel_.trace();
  result.trace->title =
      fmt::format("dear train, policy {}, {}", run_.policy, counted(index_of(group_.size()), "rank"));
  result.trace->network = network_of(group_);
  if (moe_) result.trace->spans.insert(result.trace->spans.end(), moe_->spans().begin(), moe_->spans().end());
  result.profile = parallel_.profile();
  result.profile->name = name_of(settings_);
}

TrainResult Job::end() {
  const auto steps = static_cast<std::int64_t>(losses_.size());
  std::vector<Range> counted = run_.counted.empty() ? std::vector{counted_of_run(steps)} : run_.counted;
  std::erase_if(counted,
                [&](const Range& range) { return range.end > steps; });  // of turns that were not taken
  if (counted.empty()) counted = {counted_of_run(steps)};
  TrainResult result{.policy = run_.policy,
                     .workers = group_.size(),
                     .steps = steps,
                     .network = network_of(group_),
                     .fusion = settings_.buckets.text(),
                     .optimizer = settings_.optimizer,
                     .losses = mean_over_ranks(group_, losses_),
                     .times = summarize_iterations(iteration_seconds_, exposed_seconds_, counted)};
  if (!automatic_candidates(run_.policy).empty() && group_.size() > 1)
    result.chosen_policy = parallel_.schedule().policy();
  result.sent = sent(steps);
  result.unsaved = unsaved_;
  if (kfac_) result.kfac = troubles_of(kfac_->report(), group_);
  if (run_.record_trace)
    take_record(result);  // before the digest, which reads parameters as a forward pass does
  if (moe_) result.moe = moe_->report(counted);
  result.digest = moe_ ? moe_->digest() : parameter_digest(*model_);
  agree(group_, "digest of the final parameters", result.digest);
  result.step_seconds = iteration_seconds_;
  if (parallel_.tuning() && group_.rank() == 0) {
    result.tuning = report_of(*parallel_.tuning(), result);
    result.tuning->model = name_of(settings_);
    result.tuning->cluster = settings_.network                            ? name_of(*settings_.network)
                             : settings_.grid && settings_.grid->modelled ? settings_.grid->cluster->name
                                                                          : "the real network";
  }
  if (settings_.buckets.kind != FusionChoice::Kind::given && group_.size() > 1)
    result.buckets = names_in(parallel_.workload(), parallel_.grouping());
  result.characters_per_second =
      static_cast<double>(settings_.characters_per_step()) / result.times.iteration_seconds.median;
  if (run_.sample > 0 && group_.rank() == 0) {
    result.sample = sample_text(model_, corpus_, run_.sample, settings_.job.seed);
  }
  return result;
}

}  // namespace

std::unique_ptr<TrainingJob> start_training(const TrainSettings& settings, const TrainRun& run,
                                            const Corpus& corpus, const Group& group) {
  return std::make_unique<Job>(settings, run, corpus, group);
}

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
  // libtorch allows this number to be set once in a process.
  if (at::get_num_interop_threads() != 1) {
    at::set_num_interop_threads(1);
  }
}

std::int64_t parameter_count(const TrainSettings& settings, const Corpus& corpus) {
  const GptOptions gpt = gpt_options(settings, corpus);
  return settings.moe ? parameter_count(moe_gpt_options(*settings.moe, gpt)) : parameter_count(gpt);
}

}  // namespace dear::train_command
