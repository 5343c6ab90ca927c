#include "dear/predict/plan/breakdown.h"

#include <algorithm>
#include <limits>

namespace dear::plan {

Cluster scaled(Cluster cluster, double alpha, double beta) {
  for (Dimension& dimension : cluster.dimensions) {
    dimension.link.alpha_seconds *= alpha;
    dimension.link.beta_seconds_per_byte *= beta;
  }
  cluster.software.launch_seconds *= alpha;
  cluster.software.buffer_seconds *= alpha;
  return cluster;
}

double outermost_bits_per_second(const Cluster& cluster) {
  double beta = 0;
  for (const Dimension& dimension : cluster.dimensions)
    if (dimension.size > 1) beta = dimension.link.beta_seconds_per_byte;
  return beta > 0 ? 8 / beta : std::numeric_limits<double>::infinity();
}

Breakdown break_down(const Policy& policy, const Workload& workload, const Grouping& grouping,
                     const Cluster& cluster, const cost::ClusterTimesOptions& times,
                     const sim::EvaluateOptions& options, const sim::Evaluation& evaluation) {
  const auto seconds_on = [&](const Cluster& other) {
    return sim::evaluate(policy, workload, grouping, other, cost::times_on(other, times), options);
  };
  Cluster apart = cluster;
  apart.interference = {};
  const double undisturbed =
      apart == cluster ? evaluation.iteration.seconds : seconds_on(apart).iteration.seconds;
  const sim::Evaluation without = seconds_on(scaled(apart, 0, 1));
  const double limit = std::max(without.compute_seconds, without.bound_seconds);
  return {.compute = evaluation.compute_seconds,
          .overlap = limit - without.compute_seconds,
          .fusion = without.iteration.seconds - limit,
          .start_up = undisturbed - without.iteration.seconds,
          .interference = evaluation.iteration.seconds - undisturbed};
}

}  // namespace dear::plan
