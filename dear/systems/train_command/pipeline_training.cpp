#include "dear/systems/train_command/pipeline_training.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/pipeline/pipeline.h"
#include "dear/systems/train_command/gpt.h"
#include "dear/systems/train_command/make_optimizer.h"
#include "dear/systems/train_command/trace_gather.h"
#include "dear/systems/train_command/train_result.h"

namespace dear::train_command {
namespace {

// By place the largest of all ranks.
std::vector<double> most_of_ranks(const Group& group, const std::vector<double>& mine) {
  const std::vector<std::byte> bytes = comm::all_gather_bytes(group, std::as_bytes(std::span(mine)));
  std::vector<double> all(bytes.size() / sizeof(double)), most(mine.size());
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    most[i % mine.size()] = std::max(most[i % mine.size()], all[i]);
  return most;
}

// Ranks of one host compute alike, whatever the cluster says of its devices.
std::optional<PairCluster> with_equal_devices(std::optional<PairCluster> cluster) {
  if (cluster)
    for (PairDevice& device : cluster->devices) device.flops_per_second = 1e12;
  return cluster;
}

PipelineOptions options_of(const PipelineJob& job, int ranks) {
  return {.micro_batches = job.micro_batches,
          .stages = ranks * job.stages_per_worker,
          .schedule = job.schedule,
          .method = job.planner,
          .compression = job.compression,
          .ratio = job.ratio,
          .cluster = with_equal_devices(job.cluster),
          .plan_file = job.plan_file,
          .record_trace = job.record_trace};
}

}  // namespace

PipelineTrained train_pipeline(const PipelineJob& job, const Corpus& corpus, const Group& group,
                               const PipelineListener& listener) {
  const std::int64_t context = job.gpt.context;
  const GptOptions options{.vocabulary = static_cast<std::int64_t>(corpus.vocabulary.size()),
                           .context = context,
                           .layers = job.gpt.layers,
                           .width = job.gpt.width,
                           .heads = job.gpt.heads,
                           .seed = job.gpt.seed};
  const auto samples = [&](std::int64_t step) {
    return samples_of(corpus, {.seed = job.gpt.seed, .step = step, .count = job.gpt.batch}, context);
  };
  Gpt gpt(options);
  Pipeline pipe(gpt->as_operators(), {samples(0).slice(1, 0, context)}, group, options_of(job, group.size()));
  const PipelinePlanned planned{.parameters = parameter_count(options),
                                .stages = pipe.stages(),
                                .predicted_seconds = pipe.predicted_seconds(),
                                .plan = pipe.plan()};
  PipelineTrained trained{.planned = planned, .workers = group.size(), .micro_batches = pipe.micro_batches()};
  if (const std::string modelled = group.modelled_network(); !modelled.empty())
    trained.network = "modelled: " + modelled;
  listener.planned(trained.planned);
  const auto optimizer = make_optimizer(job.optimizer, pipe.parameters(), job.learning_rate);
  const double begin = now_seconds();
  for (std::int64_t step = 0; step < job.gpt.steps; ++step) {
    const torch::Tensor batch = samples(step);
    optimizer->zero_grad();
    trained.losses.push_back(pipe.step({batch.slice(1, 0, context)}, batch.slice(1, 1), cross_entropy));
    optimizer->step();
    trained.step_seconds.push_back(pipe.statistics().seconds);
    listener.stepped(step + 1, trained.losses.back(), now_seconds() - begin);
  }
  trained.step_seconds = most_of_ranks(group, trained.step_seconds);
  const Range counted = counted_of_run(job.gpt.steps);
  trained.counted_seconds =
      spread_of({trained.step_seconds.begin() + counted.begin, trained.step_seconds.begin() + counted.end});
  for (const std::int64_t bytes : comm::all_gather_values(group, pipe.statistics().bytes_sent))
    trained.sent_bytes += static_cast<double>(bytes) / static_cast<double>(job.gpt.steps);
  if (job.record_trace) {
    Trace mine = pipe.trace();
    mine.title = fmt::format("dear pipeline train, {}", dear::counted(index_of(group.size()), "rank"));
    trained.trace = gather_trace(group, mine);
  }
  return trained;
}

}  // namespace dear::train_command
