#include "dear/systems/pipeline/made.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/methods/pipeline/planner.h"

namespace dear::systems::pipeline {
namespace {

namespace planned = methods::pipeline;

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// What rank 0 says, on every rank; ConfigError on every rank where it refuses.
std::string of_rank_0(const Group& group, const std::function<std::string()>& act) {
  std::string said, refusal;
  if (group.rank() == 0) refusal = refusal_of([&] { said = act(); });
  refuse_together(group, refusal);
  return all_gather_text(group, said).front();
}

PairCluster equal_ranks(int ranks) {
  PairCluster cluster{.name = "equal ranks"};
  for (int rank = 0; rank < ranks; ++rank) {
    cluster.devices.push_back({.name = fmt::format("rank {}", rank),
                               .flops_per_second = 1e12,
                               .memory_bytes = std::int64_t{1} << 50});
    std::vector<double> bandwidths(index_of(ranks), 1e10);
    bandwidths[index_of(rank)] = 0;
    cluster.bytes_per_second.push_back(std::move(bandwidths));
    cluster.latency_seconds.emplace_back(index_of(ranks), 0.0);
  }
  return cluster;
}

PairCluster cluster_of(const PipelineOptions& options, int ranks) {
  if (!options.cluster) return equal_ranks(ranks);
  validate(*options.cluster);
  if (std::ssize(options.cluster->devices) != ranks)
    throw ConfigError(fmt::format(
        "the cluster '{}' has {} devices, and {} places of a pipeline train: give one with a device for each "
        "rank, or its replicas, in their order",
        options.cluster->name, options.cluster->devices.size(), ranks));
  return *options.cluster;
}

planned::Plan plan_of(const PipelineOptions& options, const planned::StageCosts& costs, int ranks,
                      int micro_batches) {
  if (!options.plan_file.empty()) return planned::read_plan(options.plan_file, costs);
  const int stages = options.stages == 0 ? ranks : options.stages;
  if (stages < 1 || stages % ranks != 0)
    throw ConfigError(fmt::format("{} stages cannot be dealt to {} ranks: give a multiple", stages, ranks));
  const std::string schedule = !options.schedule.empty() ? options.schedule
                               : stages == ranks         ? "1f1b"
                                                         : "interleaved";
  return planned::make_plan(
      costs,
      {.method = planned::find_plan_method(options.method),
       .schedule = planned::find_schedule_kind(schedule),
       .micro_batches = micro_batches,
       .stages_of_device = stages / ranks,
       .compression = {.rule = planned::find_compression_rule(options.compression), .ratio = options.ratio}});
}

Tensors first_micro_batch(const Tensors& sample, int micro_batches) {
  if (sample.empty())
    throw ConfigError("the sample of a pipeline has no tensor: give a batch as a step gets it");
  Tensors part;
  for (const torch::Tensor& one : sample) {
    if (!one.defined() || one.dim() == 0 || one.size(0) != sample.front().size(0))
      throw ConfigError(
          "tensors of the sample differ in their dimension 0: it is that of samples, along which all are "
          "cut");
    if (micro_batches < 1 || one.size(0) == 0 || one.size(0) % micro_batches != 0)
      throw ConfigError(
          fmt::format("a batch of {} cannot be cut into {} micro-batches of as many samples: give a multiple",
                      one.size(0), micro_batches));
    part.push_back(one.narrow(0, 0, one.size(0) / micro_batches));
  }
  return part;
}

}  // namespace

void refuse_together(const Group& group, const std::string& mine) {
  const std::vector<char> fine = comm::all_gather_values(group, static_cast<char>(mine.empty()));
  if (std::all_of(fine.begin(), fine.end(), [](char one) { return one != 0; })) return;
  const std::vector<std::string> all = all_gather_text(group, mine);
  if (!mine.empty()) throw ConfigError(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw ConfigError(all[rank].starts_with("rank ") ? all[rank]
                                                       : fmt::format("rank {}: {}", rank, all[rank]));
}

std::unique_ptr<Made> make(const PipelineModel& model, const Tensors& sample, const Group& group,
                           const PipelineOptions& options) {
  const int ranks = group.size(), replicas = options.replicas;
  const Group own = ranks == 1 ? group : group.duplicate();
  std::unique_ptr<Made> made(new Made{
      .group = own, .job = {.model = model, .rank = group.rank(), .replicas = replicas}, .plan = ""});
  made->record_trace = options.record_trace;
  Job& job = made->job;
  agree(made->group, "number of replicas of the pipeline", std::to_string(replicas));
  if (replicas < 1 || ranks % replicas != 0)
    throw ConfigError(fmt::format(
        "{} replicas on {} ranks: each place of the pipeline has as many ranks, so give a divisor", replicas,
        ranks));
  const int places = ranks / replicas;
  const PairCluster cluster = parse_pair_cluster(
      of_rank_0(made->group, [&] { return to_json(cluster_of(options, places)); }), "the cluster");
  job.micro_batches = std::stoi(of_rank_0(made->group, [&] {
    return std::to_string(options.plan_file.empty() ? options.micro_batches
                                                    : planned::read_micro_batches(options.plan_file));
  }));
  std::string listed;  // operators with their work as on this rank
  refuse_together(made->group, refusal_of([&] {
                    job.sampled = pipeline::sample(model, first_micro_batch(sample, job.micro_batches),
                                                   options.measure);
                    listed = to_json(dag_of(model, job.sampled, cluster.devices.front().flops_per_second));
                  }));
  agree(made->group, "model or sample of the pipeline",
        fmt::format("{:016x}", planned::parse_operators(listed, "the model").digest()));
  const planned::OperatorDag dag =
      planned::parse_operators(of_rank_0(made->group, [&] { return listed; }), "the model");
  const planned::StageCosts costs(dag, cluster);
  made->plan = of_rank_0(made->group,
                         [&] { return to_json(plan_of(options, costs, places, job.micro_batches), costs); });
  const planned::Plan plan = planned::parse_plan(made->plan, "the plan", costs);
  const planned::PipelineTimes times = times_of(plan, costs);
  made->predicted_seconds = play(times).iteration_seconds;
  job.stages = stages_of(plan, model, job.sampled, replicas, job.rank % replicas);
  job.held = most_held(plan.shape());
  for (int place = 0; place < plan.places(); ++place)
    if (job.stages.rank_of(place) == job.rank) job.order = orders(plan.shape())[index_of(place)];
  for (const torch::Tensor& one : sample)
    made->batch.push_back({.sizes = one.sizes().vec(), .type = one.scalar_type()});
  refuse_together(made->group, refusal_of([&] { made->parameters.emplace(job, made->group); }));
  made->wire.emplace(ranks == 1 ? nullptr : made->group.open_channels(Wire::tags(job.stages.stages.size())),
                     job.stages, job.rank, made->group.timeout());
  made->parameters->begin();
  if (replicas > 1) {
    const Group beside = *made->group.split(job.rank / replicas, 0);
    made->means.emplace(*made->parameters, job, beside);
  }
  return made;
}

}  // namespace dear::systems::pipeline
