#include "dear/plan/breakdown.h"

#include <algorithm>

namespace dear::plan {

Cluster scaled(Cluster cluster, double alpha, double beta) {
  for (Dimension& dimension : cluster.dimensions) {
    dimension.link.alpha_seconds *= alpha;
    dimension.link.beta_seconds_per_byte *= beta;
  }
  return cluster;
}

Breakdown break_down(const Policy& policy, const Workload& workload, const Grouping& grouping,
                     const Cluster& cluster, const cost::ClusterTimesOptions& times,
                     const sim::EvaluateOptions& options, const sim::Evaluation& evaluation) {
  const Cluster prompt = scaled(cluster, 0, 1);
  const sim::Evaluation without =
      sim::evaluate(policy, workload, grouping, prompt, cost::times_on(prompt, times), options);
  const double limit = std::max(without.compute_seconds, without.bound_seconds);
  return {.compute = evaluation.compute_seconds,
          .overlap = limit - without.compute_seconds,
          .fusion = without.iteration.seconds - limit,
          .start_up = evaluation.iteration.seconds - without.iteration.seconds};
}

}  // namespace dear::plan
