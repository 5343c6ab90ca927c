#include "dear/sim/evaluate.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/schedule/collective.h"
#include "dear/sim/fabric_network.h"
#include "dear/sim/simulate.h"

namespace dear::sim {
namespace {

constexpr double kRounding = 1e-9;  // of sums of times, as a part of them
// What a laptop does in minutes and holds in memory: steps of all simulated ranks, and messages.
constexpr double kMostSteps = 1e7;
constexpr double kMostMessages = 2e9;
constexpr std::array kDetails{Detail::closed_form, Detail::flows, Detail::blocks};

algorithm::Collective collective_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::reduce_scatter:
      return algorithm::Collective::reduce_scatter;
    case CollectiveOp::all_gather:
      return algorithm::Collective::all_gather;
    case CollectiveOp::all_reduce:
      return algorithm::Collective::all_reduce;
    case CollectiveOp::broadcast:
      break;
  }
  return algorithm::Collective::broadcast;
}

void refuse_what_takes_too_long(const Schedule& schedule, std::size_t members,
                                const EvaluateOptions& options) {
  const auto ranks = static_cast<double>(members);
  const double steps = ranks * static_cast<double>(schedule.steps().size());
  if (steps > kMostSteps)
    throw ConfigError(
        fmt::format("{} ranks of {} steps each are too many to simulate one by one: give fewer ranks, or "
                    "closed-form without jitter, where one stands for all",
                    members, schedule.steps().size()));
  if (options.detail != Detail::blocks) return;
  double collectives = 0;
  for (const Step& step : schedule.steps())
    collectives += schedule.lanes()[step.lane].kind == LaneKind::network ? 1 : 0;
  const double messages =
      ranks * ranks * collectives * static_cast<double>(options.iterations) * options.repetitions;
  if (messages > kMostMessages)
    throw ConfigError(
        fmt::format("about {:.1g} messages are too many: give fewer ranks, larger buckets, fewer "
                    "iterations or repetitions, or flows instead of blocks",
                    messages));
}

// The cluster's links, and what collectives put on them.
class Wires {
 public:
  Wires(const Cluster& cluster, const Policy& policy, const Workload& workload, const Grouping& grouping,
        const cost::CollectiveTimes& times, Detail detail)
      : topology_(cluster),
        workload_(workload),
        grouping_(grouping),
        overhead_seconds_(policy.overhead_seconds != nullptr ? policy.overhead_seconds(times) : 0),
        detail_(detail) {}

  std::unique_ptr<NetworkModel> network() const {
    return std::make_unique<FabricNetwork>(topology_,
                                           [this](const Communicate& what) { return transport_of(what); });
  }

 private:
  Transport transport_of(const Communicate& what) const {
    const algorithm::Collective collective = collective_of(what.op);
    const int ranks = topology_.ranks();
    Transport transport{.bytes = static_cast<double>(bytes_of(what, workload_, grouping_)),
                        .start_up_seconds = overhead_seconds_};
    if (detail_ == Detail::blocks && what.op != CollectiveOp::broadcast) {
      transport.rounds = fabric::ring_rounds(collective, ranks);
      return transport;
    }
    transport.rounds = one_flow_rounds(collective, ranks);
    // Of the rounds' latencies the flow itself has one.
    const int rounds = (what.op == CollectiveOp::all_reduce ? 2 : 1) * (ranks - 1);
    double latency = 0;
    for (int rank = 0; rank < ranks; ++rank)
      latency = std::max(latency, topology_.latency_seconds(rank, (rank + 1) % ranks));
    transport.start_up_seconds += std::max(0, rounds - 1) * latency;
    return transport;
  }

  const fabric::Topology topology_;
  const Workload& workload_;
  const Grouping& grouping_;
  const double overhead_seconds_;
  const Detail detail_;
};

}  // namespace

std::string name_of(Detail detail) {
  switch (detail) {
    case Detail::closed_form:
      return "closed-form";
    case Detail::flows:
      return "flows";
    case Detail::blocks:
      break;
  }
  return "blocks";
}

Detail parse_detail(std::string_view text) {
  std::vector<std::string> names;
  for (const Detail detail : kDetails) {
    if (name_of(detail) == text) return detail;
    names.push_back(name_of(detail));
  }
  throw ConfigError(fmt::format("there is no detail '{}': choose one of {}", text, fmt::join(names, ", ")));
}

Evaluation evaluate(const Policy& policy, const Workload& workload, const Grouping& grouping,
                    const Cluster& cluster, const cost::CollectiveTimes& times,
                    const EvaluateOptions& options) {
  const int ranks = cluster.ranks();
  const Schedule schedule = make_schedule(policy, workload, grouping, times);
  const std::vector<double> seconds = step_seconds(schedule, workload, grouping, times);
  const bool folds = options.detail == Detail::closed_form && options.jitter == 0;
  const Variation variation{.slowdowns = folds ? folded_slowdowns(cluster.stragglers, ranks)
                                               : all_slowdowns(cluster.stragglers, ranks),
                            .jitter = options.jitter,
                            .seed = options.seed,
                            .repetitions = options.repetitions};

  refuse_what_takes_too_long(schedule, variation.slowdowns.size(), options);

  std::unique_ptr<Wires> wires;
  MakeNetwork make_network = [&](int members) {
    return std::make_unique<ClosedFormNetwork>(seconds, members);
  };
  if (options.detail != Detail::closed_form) {
    wires = std::make_unique<Wires>(cluster, policy, workload, grouping, times, options.detail);
    make_network = [&](int) { return wires->network(); };
  }
  Samples samples = iteration_samples(schedule, seconds, variation, make_network, options.iterations);

  const double slowest = *std::max_element(variation.slowdowns.begin(), variation.slowdowns.end());
  Evaluation evaluation{
      .iteration = estimate(samples.iteration_seconds),
      .f_seconds = slowest * workload.forward_seconds(),
      .b_seconds = slowest * workload.backward_seconds(),
      .memory = memory_of(workload, grouping, policy.residence, ranks, options.optimizer_states),
      .spans = std::move(samples.spans)};
  for (StepId step = 0; step < seconds.size(); ++step) {
    const LaneKind kind = schedule.lanes()[schedule.steps()[step].lane].kind;
    if (kind == LaneKind::compute) evaluation.compute_seconds += slowest * seconds[step];
    if (kind == LaneKind::network) evaluation.r_seconds += seconds[step];
  }
  evaluation.r_seconds /= policy.traffic;
  evaluation.bound_seconds = policy.bound(evaluation.f_seconds, evaluation.b_seconds, evaluation.r_seconds);
  // Less is rounding.
  const double exposed = evaluation.iteration.seconds - evaluation.compute_seconds;
  if (exposed > kRounding * evaluation.iteration.seconds) evaluation.exposed_communication_seconds = exposed;
  return evaluation;
}

}  // namespace dear::sim
