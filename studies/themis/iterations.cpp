#include "studies/themis/iterations.h"

#include <algorithm>
#include <cmath>

#include "dear/tools/cases/cases.h"
#include "dear/tools/cases/scenario.h"

namespace dear::studies::themis {

using cases::CaseNames;
using cases::Scenario;
namespace {

// The optimiser's update keeps its pace: it may go on beside an all-reduce even without overlap.
Workload scaled(Workload workload, double factor) {
  for (Layer& layer : workload.layers) {
    layer.forward_seconds *= factor;
    layer.backward_seconds *= factor;
  }
  return workload;
}

sim::Evaluation evaluated(const Workload& workload, const Cluster& network, const std::string& policy,
                          const std::string& algorithm) {
  CaseNames names;
  names.policies = {policy};
  names.algorithm = algorithm;
  const std::vector<Scenario> scenario{{.workload = workload, .cluster = network, .origin = {}}};
  return cases::simulate(scenario, cases::find_options(names, {.iterations = 8})).front().evaluation;
}

}  // namespace

std::vector<IterationGain> iteration_gains(const std::vector<Cluster>& networks,
                                           const IterationOptions& options) {
  std::vector<IterationGain> all;
  std::vector<double> ratios{0};
  ratios.insert(ratios.end(), options.ratios.begin(), options.ratios.end());
  for (const std::string& model : options.models) {
    // Plain SGD: nothing is known of the paper's updates, and the least of them leaves most to communication.
    const Workload workload = cases::find_workload(
        model, {.device = options.device, .dtype = options.dtype, .optimizer_states = 0});
    const double computed = workload.forward_seconds() + workload.backward_seconds();
    for (const std::string& policy : options.policies) {
      for (const double ratio : ratios) {
        std::vector<IterationGain> gains;
        for (const std::string& algorithm : options.algorithms) {
          gains.push_back({.model = model, .policy = policy, .algorithm = algorithm, .ratio = ratio});
        }
        for (const Cluster& network : networks) {
          Workload job = workload;
          if (ratio > 0) {
            const double communicated = evaluated(workload, network, "serial", "baseline").r_seconds;
            job = scaled(workload, communicated / ratio / computed);
          }
          const sim::Evaluation baseline = evaluated(job, network, policy, "baseline");
          for (IterationGain& gain : gains) {
            const double seconds = evaluated(job, network, policy, gain.algorithm).iteration.seconds;
            const double faster = baseline.iteration.seconds / seconds;
            const auto count = static_cast<double>(networks.size());
            gain.seconds_of_baseline += baseline.iteration.seconds / count;
            gain.seconds += seconds / count;
            gain.exposed_part_of_baseline +=
                baseline.exposed_communication_seconds / baseline.iteration.seconds / count;
            gain.gain += std::log(faster) / count;
            gain.largest = std::max(gain.largest, faster);
          }
        }
        for (IterationGain& gain : gains) gain.gain = std::exp(gain.gain);
        all.insert(all.end(), gains.begin(), gains.end());
      }
    }
  }
  return all;
}

ReachedAt where_gain_is(const std::vector<IterationGain>& gains, const std::string& model,
                        const std::string& policy, const std::string& algorithm, double gain) {
  const IterationGain* before = nullptr;
  for (const IterationGain& one : gains) {
    if (one.model != model || one.policy != policy || one.algorithm != algorithm || one.ratio == 0) continue;
    if (before && before->gain < gain && one.gain >= gain) {
      const double part = (gain - before->gain) / (one.gain - before->gain);
      return {.ratio = before->ratio * std::pow(one.ratio / before->ratio, part),
              .largest = before->largest + part * (one.largest - before->largest)};
    }
    before = &one;
  }
  return {};
}

}  // namespace dear::studies::themis
