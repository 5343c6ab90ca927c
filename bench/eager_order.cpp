// bench_eager_order [ALGORITHM]: how near dear-eager comes to what can be, and what its plans cost.
//
//   gains   five models on the paper's two networks, 64 ranks, planned buckets for each policy: iterations of
//           wfbp, dear and dear-eager, max(f + b, r), and the floor of any buckets and any order (ms); with
//           the time that borders and order take
//   orders  random jobs of 100 to 2400 buckets: the time of an order, and how far it is over what no order
//           of these buckets goes below
//
// Verifies that dear-eager is neither faster than its floors nor slower than the orders that it knows.
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/chunks.h"
#include "dear/schedule/fusion/planned.h"
#include "dear/workload/zoo/make_workload.h"

namespace {

constexpr double kRounding = 1e-9;

template <typename Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool gains(const char* network, const char* name, const std::string& algorithm) {
  const dear::Cluster cluster = dear::find_cluster(network);
  const dear::Workload workload =
      dear::zoo::make_workload(dear::zoo::find_model(name), dear::zoo::find_device(cluster.device));
  const auto times = dear::cost::times_on(cluster, {.algorithm = algorithm});
  const auto iteration = [&](std::string_view policy, const dear::Grouping& grouping) {
    return dear::sim::evaluate(dear::find_policy(policy), workload, grouping, cluster, times);
  };
  const double wfbp =
      iteration("wfbp", group_planned(workload, times, dear::Overlap::all_reduce)).iteration.seconds;
  const double dear =
      iteration("dear", group_planned(workload, times, dear::Overlap::decoupled)).iteration.seconds;
  dear::Grouping planned(workload, group(workload, dear::PerLayer{}).buckets());
  const double planning = seconds_of([&] { planned = group_planned(workload, times, dear::Overlap::eager); });
  dear::sim::Evaluation eager;
  const double ordering = seconds_of([&] { (void)make_dear_eager(workload, planned, times); });
  eager = iteration("dear-eager", planned);
  const double simple = dear::stale_gradient_floor(eager.f_seconds, eager.b_seconds, eager.r_seconds);
  const double floor = dear::eager_floor_seconds(workload, times);
  const double seconds = eager.iteration.seconds;
  const bool right = seconds >= std::max(simple, floor) * (1 - kRounding) &&
                     seconds <= std::min(dear, wfbp) * (1 + kRounding);
  fmt::print(
      "{:<11} {:<13} {:>4} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>6.3f} {:>8.1f} {:>6.3f} {:>8.0f} {:>7.2f} "
      "{}\n",
      network, name, planned.size(), 1e3 * wfbp, 1e3 * dear, 1e3 * seconds, 1e3 * simple, seconds / simple,
      1e3 * floor, seconds / floor, 1e3 * planning, 1e3 * ordering, right ? "" : "WRONG");
  return right;
}

bool orders(std::size_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  const int rounds = 10;
  double slowest = 0, farthest = 1;
  bool right = true;
  for (int round = 0; round < rounds; ++round) {
    std::vector<dear::fusion::TimedChunk> chunks(count);
    double backward = 0, forward = 0;
    const double network = 2 * unit(random);
    for (std::size_t chunk = count; chunk-- > 0;) {
      const double seconds = network * unit(random);
      chunks[chunk] = {.ready = backward += 2 * unit(random),
                       .scatter = seconds,
                       .update = 0.01 * unit(random),
                       .gather = seconds,
                       .forward_left = forward += unit(random)};
    }
    dear::fusion::EagerOrder order;
    slowest = std::max(slowest, seconds_of([&] { order = eager_order(chunks, backward + forward); }));
    const double least = least_seconds(chunks, backward + forward);
    farthest = std::max(farthest, order.seconds / least);
    right = right && order.seconds >= least * (1 - kRounding);
  }
  fmt::print("{:>5} buckets: at most {:.2f} ms, at most {:.5f} of the least {}\n", count, 1e3 * slowest,
             farthest, right ? "" : "WRONG");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string algorithm = argc > 1 ? argv[1] : "auto";
  fmt::print("{:<11} {:<13} {:>4} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>6} {:>8} {:>7}\n", "network",
             "model", "buck", "wfbp", "dear", "eager", "f+b, r", "ratio", "floor", "ratio", "plan ms",
             "order ms");
  bool right = true;
  for (const char* const network : {"10gbe-64", "100gbib-64"})
    for (const char* const name : {"resnet50", "densenet201", "inception-v4", "bert-base", "bert-large"})
      right = gains(network, name, algorithm) && right;
  for (const std::size_t count : {100U, 600U, 2400U}) right = orders(count) && right;
  return right ? 0 : 1;
}
