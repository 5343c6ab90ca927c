#include "dear/methods/kfac/modelled.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac {
namespace {

constexpr double kPartOfProducts = 0.2;  // of the rate of a product that an inverse reaches
constexpr int kLaunches = 200;
constexpr int kBytes = 4;  // of an element

double real(std::int64_t count) { return static_cast<double>(count); }

// x^T x for `positions` rows of x in each sample.
zoo::Kernel factor_of(std::int64_t positions, std::int64_t dimension) {
  return {.kind = zoo::Kind::matmul,
          .flops = 2 * real(positions) * real(dimension * dimension),
          .moved = 2 * real(positions * dimension),
          .weights = real(dimension * dimension)};
}

// A product of two matrices, whatever the number of samples.
double product_seconds(const zoo::Device& device, std::int64_t rows, std::int64_t inner,
                       std::int64_t columns) {
  const zoo::Kernel kernel{.kind = zoo::Kind::matmul,
                           .flops = 2 * real(rows) * real(inner) * real(columns),
                           .moved = real(rows * inner + inner * columns + rows * columns),
                           .weights = 0};
  return zoo::seconds(device, {kernel}, 1, DType::f32);
}

LinearCost line_of(const cost::ClusterTimes& times, Collective collective, const Job& job) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (const Factor& factor : job.factors()) {
    least = std::min(least, factor.packed_elements());
    most += factor.packed_elements();
  }
  std::vector<std::pair<std::int64_t, double>> points;
  for (std::int64_t elements = least;; elements *= 2) {
    const double seconds = times.seconds(collective, kBytes * elements);
    if (seconds > 0) points.emplace_back(elements, seconds);
    if (elements >= most) break;
  }
  return points.size() < 2 ? LinearCost{} : fit_linear(points);
}

}  // namespace

Job make_job(Workload workload, const zoo::Architecture& architecture, const zoo::Device& device,
             const JobOptions& options) {
  if (workload.layers.size() != architecture.layers.size())
    throw ConfigError(
        fmt::format("a workload of {} layers cannot have the shapes of a model of {}: make both of one model",
                    workload.layers.size(), architecture.layers.size()));
  Job job{.workload = std::move(workload), .curvature = {}};
  for (const zoo::Architecture::Layer& layer : architecture.layers) {
    job.curvature.emplace_back();
    if (!layer.matrix || std::max(layer.matrix->inputs, layer.matrix->outputs) > options.largest_dimension)
      continue;
    const auto& [inputs, outputs, positions] = *layer.matrix;
    job.curvature.back() =
        LayerCurvature{.inputs = inputs,
                       .outputs = outputs,
                       .input_factor_seconds =
                           zoo::seconds(device, {factor_of(positions, inputs)}, options.batch, DType::f32),
                       .output_factor_seconds =
                           zoo::seconds(device, {factor_of(positions, outputs)}, options.batch, DType::f32),
                       .precondition_seconds = product_seconds(device, outputs, outputs, inputs) +
                                               product_seconds(device, outputs, inputs, inputs)};
  }
  return job;
}

std::vector<std::string> left_out(const Job& job, const zoo::Architecture& architecture) {
  std::vector<std::string> names;
  for (std::size_t layer = 0; layer < architecture.layers.size(); ++layer)
    if (architecture.layers[layer].matrix && !job.curvature.at(layer))
      names.push_back(architecture.layers[layer].name);
  return names;
}

InverseCost inverse_on(const zoo::Device& device) {
  return InverseCost::cubic(
      kLaunches * device.launch_seconds,
      1 / (kPartOfProducts * device.single.matmul_efficiency * device.single.flops_per_second));
}

Costs costs_on(const Cluster& cluster, const cost::ClusterTimesOptions& algorithms, const zoo::Device& device,
               const Job& job) {
  const cost::ClusterTimes times(cluster, algorithms);
  const LinearCost broadcast = line_of(times, Collective::broadcast, job);
  return {.ranks = cluster.ranks(),
          .all_reduce = line_of(times, Collective::all_reduce, job),
          .reduce = broadcast,
          .broadcast = broadcast,
          .invert = inverse_on(device),
          .interference = cluster.interference};
}

std::int64_t curvature_bytes(const Job& job) {
  std::int64_t elements = 0;
  for (const Factor& factor : job.factors()) elements += 2 * factor.dimension * factor.dimension;
  return kBytes * elements;
}

}  // namespace dear::methods::kfac
