#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/methods/kfac/plan.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/workload/zoo/architecture.h"
#include "dear/workload/zoo/device.h"

// K-FAC on machines that are known by their data sheets: what nobody has measured yet, from the shapes of a
// model's layers, the roofline of a device and the links of a cluster.
namespace dear::methods::kfac {

// The largest dimension of a factor: the planner leaves a layer with a larger one its plain gradient, and
// training refuses it unless KfacOptions::largest_factor, which is as large, is raised.
inline constexpr std::int64_t kLargestFactor = 8192;

struct JobOptions {
  std::int64_t batch = 1;  // samples of a pass, on one rank
  // A layer with a larger factor keeps its plain gradient: vocabularies, whose factor is larger than the
  // model.
  std::int64_t largest_dimension = kLargestFactor;
};

// The training of a model with K-FAC: `workload` is what zoo::make_workload() makes of `architecture` on
// `device`. Factors and preconditioning are products of matrices by the device's roofline, in fp32.
// ConfigError for a workload of other layers.
Job make_job(Workload workload, const zoo::Architecture& architecture, const zoo::Device& device,
             const JobOptions& options);
// Names of the layers that have a weight to multiply by and no curvature in `job`, since they are too large.
std::vector<std::string> left_out(const Job& job, const zoo::Architecture& architecture);

// A Cholesky factorisation and the inverse of it, dimension³ operations in fp32, after a row of launches that
// wait for one another. The two constants, a fifth of the rate of products and 200 launches, are ours;
// docs/study/kfac holds them to published times.
InverseCost inverse_on(const zoo::Device& device);

// Collectives of fp32 elements among all ranks of a cluster, as lines that are fitted to the model of its
// links between the smallest factor of the job and all of them together; and its interference. A reduction to
// one rank takes as long as a broadcast.
Costs costs_on(const Cluster& cluster, const cost::ClusterTimesOptions& algorithms, const zoo::Device& device,
               const Job& job);

// Bytes of the running averages of all factors and of their inverses, as whole matrices in fp32, on one rank.
std::int64_t curvature_bytes(const Job& job);

}  // namespace dear::methods::kfac
