#include "dear/predict/sim/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/predict/sim/fabric_network.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/collective.h"

namespace dear::sim {
namespace {

constexpr double kRounding = 1e-9;  // of sums of times, as a part of them
// A laptop does so many in minutes, and holds them.
constexpr double kMostMessages = 2e9;

int ranks_of_one_job(const Cluster& cluster, const EvaluateOptions& options) {
  const int jobs = options.jobs.count;
  if (jobs == 1) return cluster.ranks();
  if (jobs < 1) throw ConfigError(fmt::format("{} jobs are none: give at least 1", jobs));
  if (options.detail == Detail::closed_form)
    throw ConfigError("closed forms know of no other jobs: simulate flows or blocks");
  if (cluster.ranks() % jobs != 0)
    throw ConfigError(fmt::format("{} ranks cannot be shared among {} equal jobs", cluster.ranks(), jobs));
  return cluster.ranks() / jobs;
}

// An estimate of the messages that a rank sends in a collective: those of a ring, or of all chunks in all
// dimensions.
double messages_of_rank(const Cluster& cluster, std::size_t ranks, const std::string& program) {
  if (!cost::is_chunk_planner(program)) return static_cast<double>(ranks);
  const cost::ChunkNetwork network = cost::chunk_network(cluster);
  double messages = 0;
  for (std::size_t dimension = 0; dimension < network.algorithms.size(); ++dimension) {
    const double members = network.grid.sizes[dimension];
    messages += network.algorithms[dimension] == "halving-doubling" ? std::log2(members) : members - 1;
  }
  return messages * cost::ChunkPlanOptions{}.chunks;
}

void refuse_what_takes_too_long(const Schedule& schedule, const Cluster& cluster, std::size_t members,
                                const EvaluateOptions& options) {
  const auto ranks = static_cast<double>(members);
  const double steps = ranks * static_cast<double>(schedule.steps().size());
  if (members == 1 && steps > options.most_steps)
    throw TooManySteps(fmt::format("a schedule of {} steps is too long to simulate: give larger buckets",
                                   schedule.steps().size()));
  if (steps > options.most_steps)
    throw TooManySteps(
        fmt::format("{} ranks of {} steps each are too many to simulate one by one: give fewer ranks, or "
                    "closed-form without jitter, where one stands for all",
                    members, schedule.steps().size()));
  if (options.detail != Detail::blocks) return;
  double collectives = 0;
  for (const Step& step : schedule.steps())
    collectives += schedule.lanes()[step.lane].kind == LaneKind::network ? 1 : 0;
  const double messages = ranks * messages_of_rank(cluster, members, options.program) * collectives *
                          static_cast<double>(options.iterations) * options.repetitions;
  if (messages > kMostMessages)
    throw ConfigError(
        fmt::format("about {:.1g} messages are too many: give fewer ranks, larger buckets, fewer "
                    "iterations or repetitions, or flows instead of blocks",
                    messages));
}

// The sizes of the dimensions of several members.
std::vector<int> sizes_of(const Cluster& cluster) {
  std::vector<int> sizes;
  for (const Dimension& dimension : cluster.dimensions)
    if (dimension.size > 1) sizes.push_back(dimension.size);
  return sizes;
}

constexpr std::string_view kHierarchical = "hierarchical:";

// The names after "hierarchical:".
std::vector<std::string_view> stages_of(std::string_view program) {
  std::vector<std::string_view> names;
  for (std::size_t begin = kHierarchical.size(); begin <= program.size();) {
    names.push_back(program.substr(begin, program.find(',', begin) - begin));
    begin += names.back().size() + 1;
  }
  return names;
}

bool goes_along_lines(std::string_view name) {
  const auto& names = algorithm::line_algorithms();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The rounds of a collective that goes dimension by dimension, from the innermost. Inside nodes it has the
// first dimension alone, across nodes all others.
std::shared_ptr<const fabric::Rounds> rounds_over_grid(std::vector<std::string_view> stages,
                                                       Collective collective, ProcessGroup group,
                                                       std::vector<int> sizes) {
  if (group == ProcessGroup::node) {
    stages.resize(1);
    sizes.resize(1);
  }
  if (group == ProcessGroup::across_nodes) {
    stages.erase(stages.begin());
    sizes.erase(sizes.begin());
  }
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  return fabric::grid_rounds({std::move(sizes)}, order, stages, collective);
}

// The rounds of a program among `ranks` ranks of a cluster with these sizes. A hierarchical program takes its
// part inside nodes, or across them. ConfigError for a program that there is not, or that has no such
// collective.
std::shared_ptr<const fabric::Rounds> rounds_of_program(std::string_view program, Collective collective,
                                                        ProcessGroup group, int ranks,
                                                        const std::vector<int>& sizes) {
  if (!program.starts_with(kHierarchical))
    return fabric::make_rounds(algorithm::find_algorithm(program), collective, {.ranks = ranks});
  const std::vector<std::string_view> stages = stages_of(program);
  if (stages.size() > 1 && stages.size() == sizes.size() &&
      std::all_of(stages.begin(), stages.end(), goes_along_lines))
    return rounds_over_grid(stages, collective, group, sizes);
  const int ranks_of_node = sizes.empty() ? 1 : sizes.front();
  if (stages.size() != 2 || ranks % ranks_of_node != 0)
    throw ConfigError(fmt::format(
        "'{}' is no program for {} ranks in nodes of {}, and {} dimensions: name one for inside and one for "
        "across whole nodes, as in hierarchical:ring,halving-doubling, or one of {} for each dimension",
        program, ranks, ranks_of_node, sizes.size(), fmt::join(algorithm::line_algorithms(), ", ")));
  const algorithm::Algorithm& inside = algorithm::find_algorithm(stages[0]);
  const algorithm::Algorithm& across = algorithm::find_algorithm(stages[1]);
  if (group != ProcessGroup::all)
    return fabric::make_rounds(group == ProcessGroup::node ? inside : across, collective, {.ranks = ranks});
  return fabric::rounds_of(
      algorithm::hierarchical(inside, across, collective, ranks / ranks_of_node, ranks_of_node));
}

// The dimensions along which the ranks of a process group differ, each with this group's part of the links.
Cluster part_of(const Cluster& cluster, ProcessGroup group) {
  Cluster part{.name = cluster.name, .dimensions = {}};
  for (const Dimension& dimension : cluster.dimensions)
    if (dimension.size > 1) part.dimensions.push_back(dimension);
  if (part.dimensions.empty() || group == ProcessGroup::all) return part;
  const int ranks_of_node = part.dimensions.front().size;
  if (group == ProcessGroup::node) {
    part.dimensions.resize(1);
  } else {
    part.dimensions.erase(part.dimensions.begin());
    for (Dimension& dimension : part.dimensions) dimension.link.beta_seconds_per_byte *= ranks_of_node;
  }
  return part;
}

// The cluster's links, and what collectives put on them.
class Wires {
 public:
  Wires(const Cluster& cluster, const Policy& policy, const Workload& workload, const Grouping& grouping,
        const cost::CollectiveTimes& times, const EvaluateOptions& options)
      : cluster_(cluster),
        topology_(cluster),
        workload_(workload),
        grouping_(grouping),
        overhead_seconds_(policy.overhead_seconds != nullptr ? policy.overhead_seconds(times) : 0),
        detail_(options.detail),
        program_(options.program),
        sizes_(sizes_of(cluster)),
        teams_{.ranks = topology_.ranks(), .ranks_of_node = times.ranks_of_node(), .jobs = options.jobs} {}

  // Makes the network of the schedule's collectives; the schedule must outlive it.
  std::unique_ptr<NetworkModel> network_for(const Schedule& schedule) const {
    const auto work_of = [&schedule](StepId step) -> const Communicate& {
      return std::get<Communicate>(schedule.steps()[step].work);
    };
    return std::make_unique<FabricNetwork>(
        topology_, [this, work_of](StepId step) { return transport_of(work_of(step)); },
        [work_of](StepId step) { return work_of(step).group; }, teams_);
  }

 private:
  Transport transport_of(const Communicate& what) const {
    const Team team = teams_.of(what.group, 0);  // the others are placed alike
    // Each team has its shard of the bytes that all ranks of a node carry across at once.
    const int teams = what.group == ProcessGroup::across_nodes ? teams_.ranks_of_node : 1;
    Transport transport{.bytes = static_cast<double>(bytes_of(what, workload_, grouping_)) / teams,
                        .start_up_seconds = overhead_seconds_};
    const bool message_by_message = detail_ == Detail::blocks && what.collective != Collective::broadcast;
    if (message_by_message && team.size > 1 && cost::is_chunk_planner(program_)) {
      transport.chunks = chunks_of(what, std::llround(transport.bytes));
      return transport;
    }
    if (message_by_message && !cost::is_chunk_planner(program_)) {
      std::shared_ptr<const fabric::Rounds>& rounds = rounds_[{what.collective, what.group}];
      if (!rounds) rounds = rounds_of_program(program_, what.collective, what.group, team.size, sizes_);
      transport.rounds = rounds;
      return transport;
    }
    transport.rounds = one_flow_rounds(what.collective, team.size);
    // The flow itself has one of the rounds' latencies.
    const int rounds = (what.collective == Collective::all_reduce ? 2 : 1) * (team.size - 1);
    double latency = 0;
    for (int member = 0; member < team.size; ++member)
      latency = std::max(
          latency, topology_.latency_seconds(team.rank_of(member), team.rank_of((member + 1) % team.size)));
    transport.start_up_seconds += std::max(0, rounds - 1) * latency;
    return transport;
  }

  std::shared_ptr<const fabric::ChunkPhases> chunks_of(const Communicate& what, std::int64_t bytes) const {
    std::shared_ptr<const fabric::ChunkPhases>& chunks = chunks_[{{what.collective, what.group}, bytes}];
    if (!chunks)
      chunks = std::make_shared<const fabric::ChunkPhases>(
          cost::make_chunk_plan(part_of(cluster_, what.group), what.collective, bytes,
                                {.algorithm = program_})
              .plan);
    return chunks;
  }

  const Cluster& cluster_;
  const fabric::Topology topology_;
  const Workload& workload_;
  const Grouping& grouping_;
  const double overhead_seconds_;
  const Detail detail_;
  const std::string program_;
  const std::vector<int> sizes_;
  const Teams teams_;
  using Kind = std::pair<Collective, ProcessGroup>;
  mutable std::map<Kind, std::shared_ptr<const fabric::Rounds>> rounds_;
  mutable std::map<std::pair<Kind, std::int64_t>, std::shared_ptr<const fabric::ChunkPhases>> chunks_;
};

// Seconds of an iteration's collectives.
struct Travelling {
  double before_commit = 0;
  double late = 0;          // gathered payloads that go under the next forward, or before it where they can
  double after_commit = 0;  // those that wait for it
};

Travelling travelling_of(const CompressedSchedule& made, const std::vector<double>& seconds) {
  const std::vector<Step>& steps = made.schedule.steps();
  const std::vector<std::uint8_t> crossings =
      graph::Precedence(steps.size(), made.schedule.edges()).crossings_from(made.schedule.commit());
  Travelling travelling;
  for (StepId step = 0; step < steps.size(); ++step) {
    const auto* work = std::get_if<Communicate>(&steps[step].work);
    if (work == nullptr) continue;
    const bool late = work->payload == Payload::encoded && made.encodings[work->bucket].gathers_late &&
                      work->collective == Collective::all_gather;
    (crossings[step] == 0 ? travelling.after_commit
     : late               ? travelling.late
                          : travelling.before_commit) += seconds[step];
  }
  return travelling;
}

// Seconds of the passes of an iteration beyond the first forward and the last backward pass.
double more_passes_of(const Policy& policy, const Workload& workload, const EvaluateOptions& options) {
  if (options.micro_batches < 1)
    throw ConfigError(
        fmt::format("{} passes in an iteration are none: give at least 1", options.micro_batches));
  if (options.micro_batches > 1 && policy.residence.parameters_sharded)
    throw ConfigError(fmt::format(
        "policy {} gathers its parameters again in each of the {} passes of an iteration, which is not "
        "modelled",
        policy.name, options.micro_batches));
  return (options.micro_batches - 1) * (workload.forward_seconds() + workload.backward_seconds());
}

// Where halves hide under forward and backward, each by itself, f and b bound one half each. A policy's
// closed form has halves of the same length, r / 2; so it is asked about forward and backward one by one,
// without the other half, which nothing would hide there.
double bound_of(const Policy& policy, const Evaluation& evaluation, const Travelling& travelling,
                bool codec_shares) {
  const double f = evaluation.f_seconds, b = evaluation.b_seconds;
  const auto [before, late, after] = travelling;
  const double all = before + late + after;
  const bool in_halves = policy.overlap != Overlap::all_reduce || policy.residence.optimizer_sharded;
  const double least = in_halves
                           ? policy.bound(f, 0, 2 * after) - after + policy.bound(0, b, 2 * before) - before
                           : policy.bound(f, b, all);
  return std::max({least, all, evaluation.codec_seconds + (codec_shares ? f + b : 0)});
}

}  // namespace

CompressedSchedule schedule_of(const Policy& policy, const Workload& workload, const Grouping& grouping,
                               const cost::CollectiveTimes& times, const EvaluateOptions& options) {
  if (options.compression)
    return make_compressed_schedule(policy, workload, grouping, times, *options.compression);
  return {.schedule = make_schedule(policy, workload, grouping, times), .encodings = {}};
}

Evaluation evaluate(const Policy& policy, const Workload& workload, const Grouping& grouping,
                    const Cluster& cluster, const cost::CollectiveTimes& times,
                    const EvaluateOptions& options) {
  const int ranks = ranks_of_one_job(cluster, options);
  const CompressedSchedule made = schedule_of(policy, workload, grouping, times, options);
  const Schedule& schedule = made.schedule;
  std::vector<double> seconds = step_seconds(schedule, workload, grouping, times, made.encodings);
  const double more_passes = more_passes_of(policy, workload, options);
  // They lie between the first forward and the last backward pass, where no collective is waited for.
  seconds[schedule.forward_of(static_cast<LayerId>(workload.layers.size() - 1))] += more_passes;
  const bool codec_shares = options.compression && options.compression->codec.shares_compute;
  const bool folds = options.detail == Detail::closed_form && options.jitter == 0;
  const Variation variation{.slowdowns = folds ? folded_slowdowns(cluster.stragglers, cluster.ranks())
                                               : all_slowdowns(cluster.stragglers, cluster.ranks()),
                            .jitter = options.jitter,
                            .seed = options.seed,
                            .repetitions = options.repetitions,
                            .jobs = options.jobs,
                            .interference = cluster.interference,
                            .shared = {.codec = codec_shares, .updates = options.updates_share_compute}};

  if (options.jobs.count > 1 && policy.residence.shards == ProcessGroup::node)
    throw ConfigError(fmt::format(
        "the ranks of several jobs are not whole nodes each, and policy {} shards inside nodes: simulate one "
        "job, or a policy that shards over all ranks",
        policy.name));
  if (options.jobs.count > 1 && cluster.interference != Interference{})
    throw ConfigError(fmt::format(
        "what communication and computation take from each other on cluster '{}' is known of one job alone: "
        "simulate one, or a cluster without interference",
        cluster.name));
  if (options.jobs.count > 1 &&
      (options.program.starts_with(kHierarchical) || cost::is_chunk_planner(options.program)))
    throw ConfigError("the ranks of several jobs are not whole nodes each: simulate a flat program");
  if (options.detail == Detail::flows && options.program != "ring")
    throw ConfigError("flows go around rings: simulate blocks to play another algorithm");
  refuse_what_takes_too_long(schedule, cluster, variation.slowdowns.size(), options);

  std::unique_ptr<Wires> wires;
  MakeNetwork make_network = [&](int members) {
    return std::make_unique<ClosedFormNetwork>(seconds, members);
  };
  if (options.detail != Detail::closed_form) {
    wires = std::make_unique<Wires>(cluster, policy, workload, grouping, times, options);
    make_network = [&](int) { return wires->network_for(schedule); };
  }
  Samples samples = iteration_samples(schedule, seconds, variation, make_network, options.iterations);

  const double slowest = *std::max_element(variation.slowdowns.begin(), variation.slowdowns.end());
  Evaluation evaluation{
      .iteration = estimate(samples.iteration_seconds),
      .f_seconds = slowest * workload.forward_seconds(),
      .b_seconds = slowest * workload.backward_seconds(),
      .memory = memory_of(workload, grouping, policy.residence,
                          policy.residence.shards == ProcessGroup::node ? times.ranks_of_node() : ranks,
                          options.optimizer_states,
                          options.compression ? &options.compression->compression : nullptr, made.encodings),
      .spans = std::move(samples.spans)};
  for (StepId step = 0; step < seconds.size(); ++step) {
    const LaneKind kind = schedule.lanes()[schedule.steps()[step].lane].kind;
    if (kind == LaneKind::compute || (kind == LaneKind::update && options.updates_share_compute))
      evaluation.compute_seconds += slowest * seconds[step];
    if (kind == LaneKind::codec) evaluation.codec_seconds += slowest * seconds[step];
    if (kind == LaneKind::network) evaluation.r_seconds += seconds[step];
  }
  evaluation.r_seconds /= policy.traffic;
  evaluation.bound_seconds =
      options.compression ? bound_of(policy, evaluation, travelling_of(made, seconds), codec_shares)
                          : policy.bound(evaluation.f_seconds, evaluation.b_seconds, evaluation.r_seconds);
  evaluation.bound_seconds += slowest * more_passes;
  // Less is rounding.
  const double exposed = evaluation.iteration.seconds - evaluation.compute_seconds -
                         (codec_shares ? evaluation.codec_seconds : 0);
  if (exposed > kRounding * evaluation.iteration.seconds) evaluation.exposed_communication_seconds = exposed;
  return evaluation;
}

std::vector<double> iteration_seconds(const Policy& policy, const Workload& workload,
                                      const std::vector<Grouping>& groupings, const Cluster& cluster,
                                      const cost::CollectiveTimes& times) {
  constexpr std::int64_t kIterations = 8;  // of which half warm up
  std::vector<double> seconds;
  for (const Grouping& grouping : groupings)
    seconds.push_back(evaluate(policy, workload, grouping, cluster, times,
                               {.iterations = kIterations, .updates_share_compute = false})
                          .iteration.seconds);
  return seconds;
}

}  // namespace dear::sim
