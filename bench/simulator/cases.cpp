// bench_simulator [MOST_RANKS]: how long simulations take, and what they need.
//
//   policies   every policy on 64 ranks, BERT-Large                         at most   2 s in all
//   folded     131,072 GPUs, one rank standing for all                      at most   5 s
//   blocks     every message of every rank: ResNet-50, dear, 25 MiB,        at most  60 s and 2 GiB
//              4 iterations, 64 to MOST_RANKS (1024) ranks                          with 1024 ranks
//   layers     100 to 3200 layers, a bucket each, dear
//   plan       Themis's 64 chunks on 5 dimensions, the best of all          at most   1 ms
//              planners
//   chunks     an all-reduce of 1 GB on 131,072 ranks, planned and played   at most   1 s
//   messages   the same on 1024 ranks, message by message
//
// Verifies policies, folded and layers against the critical cycle of each schedule, blocks against the closed
// form of a ring, plans against what playing them takes, messages against chunks; a wrong result is a
// failure, a slow one is only said.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/collective.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/graph/critical_cycle.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace {

using dear::Cluster;
using dear::Grouping;
using dear::Policy;
using dear::Workload;

// How much of what was done in how long.
struct Measured {
  double seconds = 0;
  double events = 0;
  bool right = true;
};

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

bool near(double value, double expected) { return std::abs(value - expected) <= 1e-7 * expected; }

bool print(const std::string& name, const Measured& measured, double limit_seconds) {
  const bool slow = limit_seconds > 0 && measured.seconds > limit_seconds;
  fmt::print("{:<44} {:>9.4f} {:>12.0f} {:>10.2f} {:>9.0f} {}{}\n", name, measured.seconds, measured.events,
             measured.events / measured.seconds / 1e6, peak_mib(), measured.right ? "" : "WRONG ",
             slow ? fmt::format("slower than {} s", limit_seconds) : "");
  return measured.right;
}

// Making the schedule included.
template <typename Simulate>
double seconds_of(Simulate simulate) {
  const auto begin = std::chrono::steady_clock::now();
  simulate();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Measured closed_form(const Policy& policy, const Workload& workload, const Grouping& grouping,
                     const Cluster& cluster) {
  const dear::cost::CollectiveTimes times = dear::cost::times_on(cluster);
  dear::sim::Evaluation evaluation;
  Measured measured;
  measured.seconds = seconds_of([&] {
    evaluation = dear::sim::evaluate(policy, workload, grouping, cluster, times, {.iterations = 64});
  });
  measured.events = static_cast<double>(evaluation.spans.size());
  const dear::Schedule schedule = make_schedule(policy, workload, grouping, times);
  const double critical =
      critical_cycle(schedule.graph(), dear::sim::step_seconds(schedule, workload, grouping, times)).seconds;
  measured.right = near(evaluation.iteration.seconds, critical);
  return measured;
}

Workload model(const char* name, const Cluster& cluster) {
  return dear::zoo::make_workload(dear::zoo::find_model(name), dear::zoo::find_device(cluster.device));
}

bool all_policies() {
  const Cluster cluster = dear::find_cluster("10gbe-64");
  const Workload workload = model("bert-large", cluster);
  const dear::cost::CollectiveTimes times = dear::cost::times_on(cluster);
  Measured all;
  for (const Policy& policy : dear::policies()) {
    const auto one = closed_form(policy, workload, policy.usual_grouping(workload, times), cluster);
    all.seconds += one.seconds;
    all.events += one.events;
    all.right = all.right && one.right;
  }
  return print("policies: bert-large, 64 ranks, all", all, 2);
}

bool folded(const char* name) {
  const Cluster cluster = dear::find_cluster("h100-400gbit-131072");
  const Workload workload = model(name, cluster);
  const Policy& dear = dear::find_policy("dear");
  const Grouping grouping = dear.usual_grouping(workload, dear::cost::times_on(cluster));
  return print(fmt::format("folded: {}, 131072 ranks, dear", name),
               closed_form(dear, workload, grouping, cluster), 5);
}

// The stream of a ring goes through one card of a node, so that others do not count.
Cluster with_one_link(Cluster cluster) {
  for (dear::Dimension& dimension : cluster.dimensions) {
    dimension.links = 1;
    dimension.beside = false;
  }
  return cluster;
}

bool blocks(int ranks) {
  const Cluster cluster = dear::find_cluster("dgx-h100-400gbit-1024", ranks);
  const Workload workload = model("resnet50", cluster);
  const Grouping grouping = group(workload, dear::BySize{.threshold_bytes = 25 * dear::kMiB});
  const Policy& dear = dear::find_policy("dear");
  const dear::cost::CollectiveTimes times =
      dear::cost::times_on(with_one_link(cluster), {.algorithm = "ring"});
  dear::sim::EvaluateOptions options{.detail = dear::sim::Detail::blocks, .iterations = 4};
  dear::sim::Evaluation played;
  Measured measured;
  measured.seconds =
      seconds_of([&] { played = evaluate(dear, workload, grouping, cluster, times, options); });
  const double messages_a_ring = static_cast<double>(ranks) * (ranks - 1);
  measured.events = 2 * messages_a_ring * static_cast<double>(grouping.size() * 4);
  options.detail = dear::sim::Detail::closed_form;
  measured.right = near(played.iteration.seconds,
                        evaluate(dear, workload, grouping, cluster, times, options).iteration.seconds);
  return print(fmt::format("blocks: resnet50, {} ranks, dear", ranks), measured, ranks == 1024 ? 60 : 0);
}

bool layers(dear::LayerId count) {
  Workload workload{.name = "even", .tensors = {}, .layers = {}};
  for (dear::LayerId layer = 0; layer < count; ++layer) {
    workload.tensors.push_back({.name = fmt::format("t{}", layer), .elements = 1'000'000});
    workload.layers.push_back({.name = fmt::format("l{}", layer),
                               .tensors = {layer},
                               .forward_seconds = 1e-3,
                               .backward_seconds = 2e-3});
  }
  const Cluster cluster = dear::find_cluster("10gbe", 16);
  return print(fmt::format("layers: {}, a bucket each, dear", count),
               closed_form(dear::find_policy("dear"), workload, group(workload, dear::PerLayer{}), cluster),
               0);
}

constexpr std::int64_t kGigabyte = 1'000'000'000;

// Events are phases of chunks.
bool plan() {
  Cluster cluster{.name = "five", .dimensions = {}};
  int ranks = 1;
  for (const double gigabits : {2000, 1600, 800, 400, 100}) {
    cluster.dimensions.push_back({.name = "dimension",
                                  .size = 4,
                                  .link = {.beta_seconds_per_byte = 8e-9 / gigabits},
                                  .links = ranks,
                                  .beside = true});
    ranks *= 4;
  }
  const dear::cost::ChunkNetwork network = dear::cost::chunk_network(cluster);
  constexpr int kPlans = 100;
  dear::cost::PlannedChunks planned;
  Measured measured;
  measured.seconds = seconds_of([&] {
                       for (int i = 0; i < kPlans; ++i)
                         planned =
                             dear::cost::make_chunk_plan(network, dear::Collective::all_reduce, kGigabyte);
                     }) /
                     kPlans;
  measured.events = planned.plan.chunks() * planned.plan.steps();
  measured.right = near(dear::cost::play(planned.plan, network).seconds, planned.seconds);
  return print("plan: 64 chunks, 5 dimensions, themis", measured, 1e-3);
}

bool chunks() {
  const Cluster cluster = dear::find_cluster("h100-400gbit-131072");
  dear::sim::CollectiveRun run;
  Measured measured;
  measured.seconds =
      seconds_of([&] { run = dear::sim::run_collective(cluster, {.bytes = kGigabyte}, "themis"); });
  measured.events = static_cast<double>(run.spans.size());
  measured.right = run.seconds >= dear::sim::ideal_collective_seconds(cluster, {.bytes = kGigabyte});
  return print("chunks: 1 GB, 131072 ranks, themis", measured, 1);
}

bool messages() {
  const Cluster cluster = dear::find_cluster("themis-4d-ring-fc-ring-sw-1024");
  dear::sim::CollectiveOptions options{.bytes = kGigabyte, .detail = dear::sim::ChunkDetail::messages};
  dear::sim::CollectiveRun run;
  Measured measured;
  measured.seconds = seconds_of([&] { run = dear::sim::run_collective(cluster, options, "themis"); });
  measured.events = static_cast<double>(run.messages);
  options.detail = dear::sim::ChunkDetail::chunks;
  measured.right = near(run.seconds, dear::sim::run_collective(cluster, options, "themis").seconds);
  return print("messages: 1 GB, 1024 ranks, themis", measured, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int most_ranks = argc > 1 ? std::atoi(argv[1]) : 1024;
  fmt::print("{:<44} {:>9} {:>12} {:>10} {:>9}\n", "simulation", "seconds", "steps", "million/s", "peak MiB");
  bool right = all_policies();
  for (const char* const name : {"gpt2-xl", "llama-70b"}) right = folded(name) && right;
  for (dear::LayerId count = 100; count <= 3200; count *= 2) right = layers(count) && right;
  fmt::print("{:<44} {:>9} {:>12}\n", "", "", "phases");
  right = plan() && right;
  right = chunks() && right;
  fmt::print("{:<44} {:>9} {:>12}\n", "", "", "messages");
  right = messages() && right;
  for (int ranks = 64; ranks <= most_ranks; ranks *= 2) right = blocks(ranks) && right;
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
