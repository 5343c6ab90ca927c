#include "dear/workload/zoo/architecture.h"

#include <functional>
#include <numeric>

namespace dear::zoo {
namespace {

template <class T, class Projection>
T sum_over(const std::vector<Architecture::Layer>& layers, Projection projection) {
  return std::transform_reduce(layers.begin(), layers.end(), T{}, std::plus<>(), [&](const auto& layer) {
    return static_cast<T>(std::invoke(projection, layer));
  });
}

}  // namespace

std::int64_t Architecture::parameters() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers) {
    for (const Parameter& parameter : layer.parameters) sum += parameter.elements;
  }
  return sum;
}

std::int64_t Architecture::tensors() const {
  return sum_over<std::int64_t>(layers, [](const Layer& layer) { return layer.parameters.size(); });
}

double Architecture::forward_flops() const {
  return sum_over<double>(layers, [](const Layer& layer) { return flops(layer.forward); });
}

std::int64_t Architecture::kept_elements() const {
  return sum_over<std::int64_t>(layers, &Layer::kept_elements);
}

std::int64_t Architecture::kept_bytes() const { return sum_over<std::int64_t>(layers, &Layer::kept_bytes); }

std::int64_t Architecture::buffer_bytes() const {
  return sum_over<std::int64_t>(layers, &Layer::buffer_bytes);
}

std::int64_t Architecture::buffers() const { return sum_over<std::int64_t>(layers, &Layer::buffers); }

double flops(const std::vector<Kernel>& kernels) {
  double sum = 0;
  for (const Kernel& kernel : kernels) sum += kernel.flops;
  return sum;
}

}  // namespace dear::zoo
