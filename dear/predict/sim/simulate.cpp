#include "dear/predict/sim/simulate.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/network_model.h"
#include "dear/predict/sim/ranks.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/policy.h"

namespace dear::sim {
namespace {

struct SecondsOf {
  const Workload& workload;
  const Grouping& grouping;
  const cost::CollectiveTimes& times;
  const std::vector<Encoding>& encodings;
  double overhead_seconds;  // of each collective
  double hold_seconds;      // of each layer
  bool joins_chunks;
  ProcessGroup shards;

  double operator()(const Forward& work) const {
    return hold_seconds + workload.layers[work.layer].forward_seconds;
  }
  double operator()(const Backward& work) const { return workload.layers[work.layer].backward_seconds; }
  double operator()(const Commit&) const { return 0; }
  double operator()(const Communicate& work) const {
    if (joins_chunks && work.group == ProcessGroup::all) {
      const std::int64_t bytes = bytes_of(work, workload, grouping);
      return overhead_seconds +
             seconds_of_joint(work.collective, work.chunk.begin, work.chunk.begin + bytes, times);
    }
    return overhead_seconds + dear::seconds_of(work, workload, grouping, times);
  }
  double operator()(const Update& work) const {
    const bool inside = shards == ProcessGroup::node;
    return dear::seconds_of(work, workload, grouping, inside ? times.ranks_of_node() : times.ranks);
  }
  double operator()(const Encode& work) const {
    if (encodings.empty()) return 0;
    const std::vector<double>& seconds = encodings[work.bucket].encode_seconds;
    return work.round < seconds.size() ? seconds[work.round] : 0;
  }
  double operator()(const Decode& work) const {
    return encodings.empty() ? 0 : encodings[work.bucket].decode_seconds;
  }
};

void require_ranks(int ranks) {
  if (ranks < 1) throw ConfigError(fmt::format("a simulation of {} ranks is none: give at least 1", ranks));
}

struct NameAndActivity {
  std::string name;
  Activity activity;
};

struct Appearance {
  const Workload& workload;

  NameAndActivity operator()(const Forward& work) const {
    return {"forward " + workload.layers[work.layer].name, Activity::forward};
  }
  NameAndActivity operator()(const Backward& work) const {
    return {"backward " + workload.layers[work.layer].name, Activity::backward};
  }
  NameAndActivity operator()(const Commit&) const { return {"commit", Activity::other}; }
  NameAndActivity operator()(const Communicate& work) const {
    const auto& [begin, end] = work.chunk;
    if (work.payload == Payload::encoded)
      return {fmt::format("{} part {} of bucket {}", name_of(work.collective), work.part, work.bucket),
              Activity::communication};
    if (work.payload == Payload::decision)
      return {fmt::format("{} decision", name_of(work.collective)), Activity::communication};
    std::string name = work.payload == Payload::buffers
                           ? fmt::format("{} buffers", name_of(work.collective))
                           : fmt::format("{} bucket {}", name_of(work.collective), work.bucket);
    if (work.payload == Payload::parameters_again) name += " again";
    if (work.group == ProcessGroup::node) name += " inside";
    if (work.group == ProcessGroup::across_nodes) name += " across";
    if (work.chunk != kWholeBucket) name += fmt::format(", bytes {} to {}", begin, end);
    return {std::move(name), Activity::communication};
  }
  NameAndActivity operator()(const Update& work) const {
    std::string name = fmt::format("update bucket {}", work.bucket);
    if (work.chunk != kWholeBucket) name += fmt::format(", bytes {} to {}", work.chunk.begin, work.chunk.end);
    return {std::move(name), Activity::update};
  }
  NameAndActivity operator()(const Encode& work) const {
    std::string name = fmt::format("encode bucket {}", work.bucket);
    if (work.round > 0) name += fmt::format(", round {}", work.round);
    return {std::move(name), Activity::codec};
  }
  NameAndActivity operator()(const Decode& work) const {
    return {fmt::format("decode bucket {}", work.bucket), Activity::codec};
  }
};

// Null for a schedule of your own.
const Policy* policy_of(const Schedule& schedule) {
  const auto found = std::find_if(policies().begin(), policies().end(),
                                  [&](const Policy& policy) { return policy.name == schedule.policy(); });
  return found == policies().end() ? nullptr : &*found;
}

std::string describe(const Link& link) {
  return fmt::format("alpha {}, {}", format_seconds(link.alpha_seconds),
                     link.beta_seconds_per_byte > 0 ? format_bandwidth(8 / link.beta_seconds_per_byte)
                                                    : "unlimited bandwidth");
}

}  // namespace

std::vector<double> step_seconds(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                                 const cost::CollectiveTimes& times, const std::vector<Encoding>& encodings) {
  require_ranks(times.ranks);
  const Policy* policy = policy_of(schedule);
  const bool overhead = policy != nullptr && policy->overhead_seconds != nullptr;
  const SecondsOf seconds_of{workload,
                             grouping,
                             times,
                             encodings,
                             overhead ? policy->overhead_seconds(times) : 0,
                             policy != nullptr && policy->holds_layers ? times.hold_seconds : 0,
                             policy != nullptr && policy->joins_chunks,
                             policy != nullptr ? policy->residence.shards : ProcessGroup::all};
  std::vector<double> seconds;
  seconds.reserve(schedule.steps().size());
  for (const Step& step : schedule.steps()) seconds.push_back(std::visit(seconds_of, step.work));
  return seconds;
}

std::vector<double> step_seconds(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                                 const Link& link, int ranks) {
  return step_seconds(schedule, workload, grouping, cost::ring_times(link, ranks));
}

Result simulate(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                const Link& link, const Options& options) {
  if (options.iterations < 4)
    throw ConfigError(fmt::format("a simulation of {} iterations reaches no steady state: give at least 4",
                                  options.iterations));
  const std::vector<double> seconds = step_seconds(schedule, workload, grouping, link, options.ranks);

  Result result;
  result.f_seconds = workload.forward_seconds();
  result.b_seconds = workload.backward_seconds();
  for (StepId step = 0; step < seconds.size(); ++step) {
    const LaneKind kind = schedule.lanes()[schedule.steps()[step].lane].kind;
    if (kind == LaneKind::compute) result.compute_seconds += seconds[step];
    if (kind == LaneKind::network) result.r_seconds += seconds[step];
  }
  if (const Policy* policy = policy_of(schedule))
    result.bound_seconds =
        policy->bound(result.f_seconds, result.b_seconds, result.r_seconds / policy->traffic);

  ClosedFormNetwork network(seconds, 1);
  RanksResult run = drive_ranks(
      schedule, options.iterations, 1, [&](int, Instance which) { return seconds[which.step]; }, network);
  result.spans = std::move(run.spans);

  // From commit to commit: every rank has exactly one in an iteration.
  const std::int64_t half = options.iterations / 2;
  const std::vector<double>& commits = run.commit_seconds.front();
  result.iteration_seconds = (commits.back() - commits[commits.size() - 1 - static_cast<std::size_t>(half)]) /
                             static_cast<double>(half);
  result.exposed_communication_seconds = std::max(0.0, result.iteration_seconds - result.compute_seconds);
  return result;
}

std::string format_bandwidth(double bits_per_second) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T"};
  std::size_t prefix = 0;
  for (; bits_per_second >= 999.9995 && prefix + 1 < kPrefixes.size(); ++prefix) bits_per_second /= 1000;
  return fmt::format("{:.4g} {}b/s", bits_per_second, kPrefixes[prefix]);
}

std::string describe(const Network& network) {
  return fmt::format("modelled: {} ({})", network.name, describe(network.link));
}

std::string describe(const Cluster& cluster) {
  std::string dimensions;
  for (const Dimension& dimension : cluster.dimensions)
    dimensions += fmt::format("{}{} x {}: {}", dimensions.empty() ? "" : "; ", dimension.size, dimension.name,
                              describe(dimension.link));
  const auto& [communication, computation] = cluster.interference;
  if (cluster.interference != Interference{})
    dimensions +=
        fmt::format("; while both go on, communication takes {:.2f} and computation {:.2f} times as long",
                    communication, computation);
  if (cluster.software.launch_seconds > 0)
    dimensions += fmt::format("; launch of a collective {}", format_seconds(cluster.software.launch_seconds));
  return fmt::format("modelled: {} ({})", cluster.name, dimensions);
}

Trace to_trace(const Schedule& schedule, const Workload& workload,
               const std::vector<conductor::StepSpan>& spans, const std::string& network, int ranks) {
  require_ranks(ranks);
  Trace trace;
  trace.title =
      fmt::format("dear simulate, policy {}, {}", schedule.policy(), counted(index_of(ranks), "rank"));
  trace.network = network;
  trace.spans.reserve(spans.size());
  for (const conductor::StepSpan& span : spans) {
    const Step& step = schedule.steps().at(span.which.step);
    auto [name, activity] = std::visit(Appearance{workload}, step.work);
    trace.spans.push_back({.rank = 0,
                           .lane = schedule.lanes()[step.lane].name,
                           .name = std::move(name),
                           .activity = activity,
                           .iteration = span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return trace;
}

}  // namespace dear::sim
