#include "dear/cli/train_run.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/cli/gpt.h"
#include "dear/cli/make_optimizer.h"
#include "dear/collective/exchange.h"
#include "dear/train/data_parallel.h"

namespace dear::cli {
namespace {

GptOptions gpt_options(const TrainSettings& settings, const Corpus& corpus) {
  return {.vocabulary = static_cast<std::int64_t>(corpus.vocabulary.size()),
          .context = settings.context,
          .layers = settings.layers,
          .width = settings.width,
          .heads = settings.heads,
          .seed = settings.seed};
}

// This rank's part of the global batch of a step: int64 [batch, context + 1]; each row's last `context`
// characters are the targets of its first `context`.
torch::Tensor make_batch(const TrainSettings& settings, const Corpus& corpus, std::int64_t step, int rank) {
  const std::int64_t length = settings.context + 1;
  const auto positions = sample_positions(
      {.seed = settings.seed, .step = step, .first = rank * settings.batch, .count = settings.batch},
      static_cast<std::int64_t>(corpus.numbers.size()) - settings.context);
  torch::Tensor batch = torch::empty({settings.batch, length}, torch::kInt64);
  auto* out = batch.data_ptr<std::int64_t>();
  for (const std::int64_t position : positions) {
    out = std::copy_n(corpus.numbers.begin() + position, length, out);
  }
  return batch;
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
  return fmt::format("gpt of {} layers, width {}, batch {}", settings.layers, settings.width, settings.batch);
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
                      .settled = tuning.settled,
                      .remark = tuning.cache_error,
                      .expectations = tuning.expectations};
  for (const tune::Trial& trial : tuning.trials)
    report.trials.push_back({.candidate = trial.candidate, .seconds = trial.seconds});
  return report;
}

std::string sample_text(Gpt model, const Corpus& corpus, std::int64_t count, std::uint64_t seed) {
  // A line's end, where there are lines: what follows is the start of one.
  const std::size_t newline = corpus.vocabulary.find('\n');
  const std::int64_t start = newline == std::string::npos ? 0 : static_cast<std::int64_t>(newline);
  std::string text;
  for (const std::int64_t character : generate(std::move(model), {start}, count, seed)) {
    text.push_back(corpus.vocabulary[static_cast<std::size_t>(character)]);
  }
  return text;
}

}  // namespace

TrainResult train(const TrainSettings& settings, const TrainRun& run, const Corpus& corpus,
                  const Group& group) {
  const GptOptions shape = gpt_options(settings, corpus);
  Gpt model(shape);
  const auto optimizer = make_optimizer(settings.optimizer, model->parameters(), settings.learning_rate);
  using Buckets = TrainSettings::Buckets;
  const bool tuned = settings.buckets == Buckets::tuned;
  DataParallel parallel(*model, *optimizer, group,
                        {.policy = run.policy,
                         .fusion = tuned ? std::nullopt : std::optional(settings.fusion),
                         .planned = settings.buckets == Buckets::planned,
                         .one_copy = settings.one_copy,
                         .tuning = {.start = settings.fusion, .cache = settings.tuning_cache},
                         .record_trace = run.record_trace});

  std::vector<double> losses, iteration_seconds, exposed_seconds;
  const double begin = now_seconds();
  double previous = begin;
  double exposed_before = 0;
  for (std::int64_t step = 0; step < settings.steps; ++step) {
    const torch::Tensor batch = make_batch(settings, corpus, step, group.rank());
    const torch::Tensor logits = model->forward(batch.slice(1, 0, settings.context));
    torch::Tensor loss = cross_entropy(logits, batch.slice(1, 1));
    losses.push_back(loss.item<double>());
    loss.backward();
    parallel.step();

    const double now = now_seconds();
    const double exposed = parallel.statistics().exposed_seconds;
    iteration_seconds.push_back(now - std::exchange(previous, now));
    exposed_seconds.push_back(exposed - std::exchange(exposed_before, exposed));
    if (run.on_step) {
      run.on_step(step + 1, losses.back(), now - begin);
    }
    if (run.until_settled && parallel.tuning() && parallel.tuning()->settled) break;
  }
  parallel.synchronize();

  TrainResult result{.policy = run.policy,
                     .workers = group.size(),
                     .steps = static_cast<std::int64_t>(losses.size()),
                     .network = network_of(group),
                     .fusion = settings.fusion_text(),
                     .optimizer = settings.optimizer,
                     .losses = mean_over_ranks(group, losses),
                     .times = summarize_iterations(iteration_seconds, exposed_seconds),
                     .digest = parameter_digest(*model)};
  agree(group, "digest of the final parameters", result.digest);
  result.step_seconds = iteration_seconds;
  if (parallel.tuning() && group.rank() == 0) {
    result.tuning = report_of(*parallel.tuning(), result);
    result.tuning->model = name_of(settings);
    result.tuning->cluster = settings.network ? settings.network->name : "the real network";
    result.buckets = names_in(parallel.workload(), parallel.grouping());
  }
  result.characters_per_second =
      static_cast<double>(settings.characters_per_step()) / result.times.iteration_seconds.median;
  if (run.record_trace) {
    result.trace = parallel.trace();
    result.trace->title = fmt::format("dear train, policy {}, {} ranks", run.policy, group.size());
    result.trace->network = result.network;
    result.profile = parallel.profile();
    result.profile->name = name_of(settings);
  }
  if (run.sample > 0 && group.rank() == 0) {
    result.sample = sample_text(model, corpus, run.sample, settings.seed);
  }
  return result;
}

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
  // OpenBLAS may come with threads of its own (libopenblas0-pthread), which libtorch says nothing to.
  if (void* const symbol = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(symbol)(threads);
  }
  // It may be set once in a process.
  if (at::get_num_interop_threads() != 1) {
    at::set_num_interop_threads(1);
  }
}

std::int64_t parameter_count(const TrainSettings& settings, const Corpus& corpus) {
  return parameter_count(gpt_options(settings, corpus));
}

}  // namespace dear::cli
