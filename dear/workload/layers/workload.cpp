#include "dear/workload/layers/workload.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

// So that no sum of times or bytes over layers, iterations and ranks overflows.
constexpr double kMostSeconds = 1e6;                        // of a layer, or the update
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of all tensors

void validate_seconds(double seconds, const std::string& what) {
  if (!(seconds >= 0 && seconds <= kMostSeconds)) {
    throw ConfigError(fmt::format("{} is {}: give seconds, from 0 to {:g}", what, seconds, kMostSeconds));
  }
}

void validate_tensors(const Workload& workload) {
  std::int64_t bytes_left = kMostBytes;
  for (std::size_t t = 0; t < workload.tensors.size(); ++t) {
    const Tensor& tensor = workload.tensors[t];
    if (tensor.name.empty()) throw ConfigError(fmt::format("tensor {} has no name: give it one", t));
    if (tensor.elements < 1) {
      throw ConfigError(
          fmt::format("tensor {} ('{}') has {} elements: give a number above zero, or leave the tensor out",
                      t, tensor.name, tensor.elements));
    }
    if (tensor.elements > bytes_left / size_of(tensor.dtype)) {
      throw ConfigError(
          fmt::format("tensor {} ('{}') has {} elements, which takes the workload beyond 2^50 bytes: "
                      "correct the number",
                      t, tensor.name, tensor.elements));
    }
    bytes_left -= tensor.bytes();
  }
}

// Takes `bytes` off those that are left of kMostBytes.
void validate_bytes(std::int64_t bytes, const std::string& what, std::int64_t& bytes_left) {
  if (bytes < 0 || bytes > bytes_left) {
    throw ConfigError(fmt::format("{} is {}: give bytes, 0 or more, up to 2^50 in all", what, bytes));
  }
  bytes_left -= bytes;
}

// Adds the layer's tensors to `used`, the number of tensors met so far.
void validate_tensors_of(const Workload& workload, std::size_t l, std::size_t& used) {
  const Layer& layer = workload.layers[l];
  std::vector<TensorId> seen;
  for (const TensorId t : layer.tensors) {
    if (t >= workload.tensors.size()) {
      throw ConfigError(
          fmt::format("layer {} ('{}') lists tensor {}, but there are only {}: correct the index", l,
                      layer.name, t, workload.tensors.size()));
    }
    if (std::find(seen.begin(), seen.end(), t) != seen.end()) {
      throw ConfigError(fmt::format("layer {} ('{}') lists tensor {} ('{}') twice: list it once", l,
                                    layer.name, t, workload.tensors[t].name));
    }
    seen.push_back(t);
    if (t > used) {
      throw ConfigError(
          fmt::format("layer {} ('{}') lists tensor {} ('{}') before tensor {} ('{}') was used: number "
                      "tensors in the order in which layers first use them",
                      l, layer.name, t, workload.tensors[t].name, used, workload.tensors[used].name));
    }
    if (t == used) ++used;
  }
}

}  // namespace

std::int64_t Workload::bytes() const {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

double Workload::forward_seconds() const {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.forward_seconds;
  return sum;
}

double Workload::backward_seconds() const {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.backward_seconds;
  return sum;
}

std::string cpu_device(int threads) {
  return fmt::format("cpu, {} thread{}", threads, threads == 1 ? "" : "s");
}

std::string_view device_name(std::string_view device) { return device.substr(0, device.find(',')); }

void validate(const Workload& workload) {
  if (workload.name.empty()) throw ConfigError("the workload has no name: give it one");
  if (workload.layers.empty()) {
    throw ConfigError(fmt::format("workload '{}' has no layer: give it at least one", workload.name));
  }
  validate_seconds(workload.update_seconds, fmt::format("update_seconds of workload '{}'", workload.name));
  validate_tensors(workload);
  std::int64_t bytes_left = kMostBytes;
  validate_bytes(workload.buffer_bytes, fmt::format("buffer_bytes of workload '{}'", workload.name),
                 bytes_left);
  if (workload.buffers < 0)
    throw ConfigError(
        fmt::format("buffers of workload '{}' are {}: give 0 or more", workload.name, workload.buffers));
  std::size_t used = 0;
  for (std::size_t l = 0; l < workload.layers.size(); ++l) {
    const Layer& layer = workload.layers[l];
    if (layer.name.empty()) throw ConfigError(fmt::format("layer {} has no name: give it one", l));
    validate_seconds(layer.forward_seconds, fmt::format("forward_seconds of layer {} ('{}')", l, layer.name));
    validate_seconds(layer.backward_seconds,
                     fmt::format("backward_seconds of layer {} ('{}')", l, layer.name));
    validate_bytes(layer.activation_bytes, fmt::format("activation_bytes of layer {} ('{}')", l, layer.name),
                   bytes_left);
    validate_tensors_of(workload, l, used);
  }
  if (used < workload.tensors.size()) {
    throw ConfigError(
        fmt::format("tensor {} ('{}') is used by no layer: list it in the layer that reads it, or leave it "
                    "out",
                    used, workload.tensors[used].name));
  }
}

}  // namespace dear
