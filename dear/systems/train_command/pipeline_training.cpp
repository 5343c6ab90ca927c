#include "dear/systems/train_command/pipeline_training.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "dear/base/archive/step_folder.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/pipeline/pipeline.h"
#include "dear/systems/train_command/gpt.h"
#include "dear/systems/train_command/make_optimizer.h"
#include "dear/systems/train_command/trace_gather.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/stop_on_signal.h"

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
  const int places = ranks / job.replicas;
  return {.micro_batches = job.micro_batches,
          .stages = places * job.stages_per_worker,
          .replicas = job.replicas,
          .schedule = job.schedule,
          .method = job.planner,
          .compression = job.compression,
          .ratio = job.ratio,
          .cluster = with_equal_devices(job.cluster),
          .plan_file = job.plan_file,
          .record_trace = job.record_trace};
}

// The checkpoints of a run.
class PipelineCheckpoints {
 public:
  PipelineCheckpoints(const Saving& saving, Pipeline& pipe, torch::optim::Optimizer& optimizer,
                      const Group& group, const Say& say)
      : saving_(saving),
        pipe_(pipe),
        optimizer_(optimizer),
        group_(group),
        say_(say),
        folder_(saving.directory) {
    checkpoint::on_rank_0(group_, [&] { folder_.open_for_writing(); });
  }

  // Returns the step of the newest checkpoint that is whole; 0 for none.
  std::int64_t resume() {
    std::string listed;
    checkpoint::on_rank_0(group_, [&] {
      for (const archive::StepFolder::Saved& saved : folder_.saved())
        if (!saved.sharded) listed += fmt::format("{} ", saved.step);
    });
    std::istringstream steps(all_gather_text(group_, listed).front());
    std::string damaged;
    for (std::int64_t step = 0; steps >> step;) {
      const std::string path = folder_.of(step, false).path;
      try {
        checkpoint::on_rank_0(group_, [&] { archive::ZipReader(path).verify(); });
      } catch (const ConfigError& error) {
        damaged = error.what();
        tell(fmt::format("{}; the checkpoint before it is taken", error.what()));
        continue;
      }
      saved_at_ = pipe_.load(optimizer_, path).step;
      tell(fmt::format("resumed at step {} from {}", saved_at_, saving_.directory));
      return saved_at_;
    }
    if (!damaged.empty()) folder_.refuse_all(damaged);
    tell(fmt::format("{} has no checkpoint: training begins at step 0", saving_.directory));
    return 0;
  }

  // A checkpoint that cannot be written ends no training, but the last one is what the run was for. Returns
  // why that one could not be written, or "".
  std::string save(std::int64_t step, bool last) {
    if (last ? saved_at_ != step : step % saving_.every == 0) try {
        pipe_.save(optimizer_, folder_.of(step, false).path, {.step = step});
        checkpoint::on_rank_0(group_, [&] { folder_.keep_newest(saving_.keep); });
        saved_at_ = step;
      } catch (const ConfigError& error) {
        if (last) return error.what();
        tell(error.what());
      }
    if (last) tell(fmt::format("saved step {} in {}", step, saving_.directory));
    return "";
  }

 private:
  void tell(const std::string& sentence) const {
    if (say_ && group_.rank() == 0) say_(sentence);
  }

  const Saving& saving_;
  Pipeline& pipe_;
  torch::optim::Optimizer& optimizer_;
  const Group& group_;
  const Say& say_;
  archive::StepFolder folder_;
  std::int64_t saved_at_ = -1;  // a step
};

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
  const std::int64_t own = job.gpt.batch / job.replicas;  // samples of this replica
  const auto samples = [&](std::int64_t step) {
    return samples_of(corpus, {.seed = job.gpt.seed, .step = step, .count = job.gpt.batch}, context)
        .narrow(0, group.rank() % job.replicas * own, own);
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
  const bool saves = !job.saving.directory.empty();
  std::optional<PipelineCheckpoints> checkpoints;
  if (saves) checkpoints.emplace(job.saving, pipe, *optimizer, group, listener.say);
  if (job.saving.resume) trained.resumed_at = checkpoints->resume();
  if (trained.resumed_at >= job.gpt.steps)
    throw ConfigError(
        fmt::format("the checkpoint in {} is of step {}, and {} steps were asked for: ask for more",
                    job.saving.directory, trained.resumed_at, job.gpt.steps));
  StopOnSignal stop(group, {.signal = SIGINT, .also = saves ? SIGTERM : 0});
  const double begin = now_seconds();
  std::int64_t step = trained.resumed_at;
  do {
    const torch::Tensor batch = samples(step);
    optimizer->zero_grad();
    trained.losses.push_back(pipe.step({batch.slice(1, 0, context)}, batch.slice(1, 1), cross_entropy));
    if (job.clip > 0) (void)pipe.clip_grad_norm(job.clip);
    optimizer->step();
    trained.step_seconds.push_back(pipe.statistics().seconds);
    listener.stepped(++step, trained.losses.back(), now_seconds() - begin);
    if (checkpoints) static_cast<void>(checkpoints->save(step, false));
  } while (step < job.gpt.steps && !stop.requested());
  trained.interrupted = step < job.gpt.steps && stop.signal() == SIGINT;
  if (checkpoints && step < job.gpt.steps && listener.say && group.rank() == 0)
    listener.say(fmt::format("{} came: saving after step {}, and ending",
                             trained.interrupted ? "SIGINT" : "SIGTERM", step));
  if (checkpoints) trained.unsaved = checkpoints->save(step, true);
  const auto taken = static_cast<std::int64_t>(trained.losses.size());
  trained.step_seconds = most_of_ranks(group, trained.step_seconds);
  const Range counted = counted_of_run(taken);
  trained.counted_seconds =
      spread_of({trained.step_seconds.begin() + counted.begin, trained.step_seconds.begin() + counted.end});
  for (const std::int64_t bytes : comm::all_gather_values(group, pipe.statistics().bytes_sent))
    trained.sent_bytes += static_cast<double>(bytes) / static_cast<double>(taken);
  if (job.record_trace) {
    Trace mine = pipe.trace();
    mine.title = fmt::format("dear pipeline train, {}", dear::counted(index_of(group.size()), "rank"));
    trained.trace = gather_trace(group, mine);
  }
  return trained;
}

}  // namespace dear::train_command
