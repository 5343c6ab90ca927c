#include "dear/systems/train_command/simulated_tuning.h"

#include <cmath>
#include <utility>

#include "dear/predict/sim/evaluate.h"
#include "dear/predict/tune/observations.h"
#include "dear/schedule/policies/fusion_choice.h"

namespace dear::train_command {
void misjudge(Workload& workload, Cluster& cluster, double error, tune::Draws& draws) {
  const auto factor = [&] { return std::pow(1 + error, 2 * draws.unit() - 1); };
  for (Dimension& dimension : cluster.dimensions) {
    dimension.link.alpha_seconds *= factor();
    dimension.link.beta_seconds_per_byte *= factor();
  }
  const double all = factor();
  for (Layer& layer : workload.layers) {
    layer.forward_seconds *= all * factor();
    layer.backward_seconds *= all * factor();
  }
}

std::vector<double> simulated_seconds(const SizeCandidates& sizes, const Policy& policy,
                                      const Workload& workload, const Cluster& cluster,
                                      const cost::ClusterTimesOptions& times) {
  constexpr std::int64_t kIterations = 8;  // of which half warm up
  const cost::CollectiveTimes on_cluster = cost::times_on(cluster, times);
  std::vector<double> seconds;
  for (const Grouping& grouping : sizes.groupings)
    seconds.push_back(
        sim::evaluate(policy, workload, grouping, cluster, on_cluster, {.iterations = kIterations})
            .iteration.seconds);
  return seconds;
}

double noisy_seconds(double seconds, double noise, int window, tune::Draws& draws) {
  std::vector<double> iterations;
  for (int i = 0; i < window; ++i)
    iterations.push_back(seconds * std::exp(noise * draws.normal() - noise * noise / 2));
  return tune::median(std::move(iterations));
}

TuningReport tune_simulated(const Workload& workload, const Cluster& cluster,
                            const SimulatedTuningOptions& options) {
  TuningReport report{.model = workload.name,
                      .cluster = cluster.name,
                      .ranks = cluster.ranks(),
                      .policy = std::string(options.policy->name),
                      .method = options.method,
                      .where = "simulation",
                      .sizes = size_candidates(workload)};
  if (options.planned)
    add_grouping(report.sizes, "planned",
                 FusionChoice::of_simulation("planned").resolve(*options.policy, workload,
                                                                cost::times_on(cluster, options.times)));
  report.true_seconds = simulated_seconds(report.sizes, *options.policy, workload, cluster, options.times);
  tune::TunerOptions tuner_options{.trials = options.trials, .seed = options.seed};
  tune::Draws draws(options.seed);
  if (options.prior) {
    Workload wrong_workload = workload;
    Cluster wrong_cluster = cluster;
    misjudge(wrong_workload, wrong_cluster, options.prior_error, draws);
    tuner_options.prior.seconds =
        simulated_seconds(report.sizes, *options.policy, wrong_workload, wrong_cluster, options.times);
  }
  const auto tuner = tune::find_method(options.method).make(report.sizes.candidates, tuner_options);
  while (const auto candidate = tuner->suggest()) {
    const double seconds =
        noisy_seconds(report.true_seconds[*candidate], options.noise, options.window, draws);
    tuner->observe(*candidate, seconds);
    report.trials.push_back({.candidate = *candidate, .seconds = seconds});
  }
  report.choice = *tuner->best();
  report.expectations = tuner->expectations();
  return report;
}

}  // namespace dear::train_command
