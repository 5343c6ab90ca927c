#include "dear/workload/zoo/make_workload.h"

#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::zoo {
namespace {

// Below these no count of bytes leaves 63 bits.
constexpr std::int64_t kMostSamples = 1 << 20;
constexpr std::int64_t kMostSize = 1 << 17;

void expect_up_to(std::string_view what, std::int64_t value, std::int64_t most) {
  if (value < 0 || value > most) {
    throw ConfigError(fmt::format("a {} of {} cannot be: choose one from 1 to {}, or 0 for the model's own",
                                  what, value, most));
  }
}

// Tensors in the order of first use; those that are tied are found by name.
void add_tensors(const Architecture::Layer& from, DType dtype, std::map<std::string, TensorId>& ids,
                 Workload& workload, Layer& layer) {
  for (const Architecture::Parameter& parameter : from.parameters) {
    const std::string name = from.name + "." + parameter.name;
    const auto id = static_cast<TensorId>(workload.tensors.size());
    ids[name] = id;
    layer.tensors.push_back(id);
    workload.tensors.push_back({.name = name, .elements = parameter.elements, .dtype = dtype});
  }
  for (const std::string& name : from.tied) layer.tensors.push_back(ids.at(name));
}

// For a parameter in fp32 its gradient is read, it and the states are read and written. Of one in half
// precision gradient and parameter are half as long, and its copy in fp32 is read and written: the same sum.
double update_bytes(const Workload& workload, int states) {
  double elements = 0;
  for (const Tensor& tensor : workload.tensors) elements += static_cast<double>(tensor.elements);
  return elements * (3 + 2 * states) * static_cast<double>(size_of(DType::f32));
}

Workload as_modelled(const Model& model, const Device& device, const WorkloadOptions& options) {
  const Architecture architecture = model.make(options.size);
  Workload workload{.name = std::string(model.name), .tensors = {}, .layers = {}};
  workload.device = device.name;
  std::map<std::string, TensorId> ids;
  for (const Architecture::Layer& from : architecture.layers) {
    const std::int64_t kept = from.kept_elements * size_of(*options.dtype) + from.kept_bytes;
    Layer layer{.name = from.name,
                .tensors = {},
                .forward_seconds = seconds(device, from.forward, options.batch, *options.dtype),
                .backward_seconds = seconds(device, from.backward, options.batch, *options.dtype),
                .activation_bytes = kept * options.batch};
    add_tensors(from, *options.dtype, ids, workload, layer);
    workload.layers.push_back(std::move(layer));
  }
  workload.buffer_bytes = architecture.buffer_bytes();
  workload.buffers = architecture.buffers();
  workload.update_seconds = transfer_seconds(device, update_bytes(workload, options.optimizer_states));
  return workload;
}

struct Scale {
  double forward = 1;
  double backward = 1;
};

// By which the workload's times come to those of a measured iteration. The update stays as it is.
Scale scale_to(const Workload& workload, double iteration_seconds, double forward_share) {
  if (!std::isfinite(iteration_seconds) || !(forward_share > 0 && forward_share < 1)) {
    throw ConfigError(fmt::format(
        "an iteration of {} s, {} of them forward, cannot be: give seconds above zero and a share "
        "between 0 and 1",
        iteration_seconds, forward_share));
  }
  const double forward = iteration_seconds * forward_share;
  const double backward = iteration_seconds - forward - workload.update_seconds;
  if (backward <= 0) {
    throw ConfigError(
        fmt::format("an iteration of {} s leaves no time for the backward of '{}', whose update takes {} s: "
                    "give a longer one or a smaller share of forward",
                    iteration_seconds, workload.name, workload.update_seconds));
  }
  return {.forward = forward / workload.forward_seconds(),
          .backward = backward / workload.backward_seconds()};
}

Scale scale_of(const Workload& workload, const Model& model, const Device& device,
               const WorkloadOptions& options) {
  if (options.iteration_seconds) {
    return scale_to(workload, *options.iteration_seconds, options.forward_share);
  }
  if (!model.measured || model.measured->device != device.name || options.dtype != DType::f32) return {};
  return scale_to(as_modelled(model, device, {.batch = model.batch, .size = model.size, .dtype = DType::f32}),
                  model.measured->seconds, model.measured->forward_share);
}

}  // namespace

DType usual_dtype(const Model& model, const Device& device) {
  if (model.measured && model.measured->device == device.name) return DType::f32;
  return model.dtype == DType::f32 ? DType::f32 : device.half_type;
}

Workload make_workload(const Model& model, const Device& device, const WorkloadOptions& options) {
  expect_up_to("batch", options.batch, kMostSamples);
  expect_up_to("size", options.size, kMostSize);
  WorkloadOptions complete = options;
  if (complete.batch == 0) complete.batch = model.batch;
  if (complete.size == 0) complete.size = model.size;
  if (!complete.dtype) complete.dtype = usual_dtype(model, device);
  if (complete.optimizer_states < 0)
    throw ConfigError(fmt::format("an optimiser keeps no {} values for a parameter: give 0 or more",
                                  complete.optimizer_states));
  Workload workload = as_modelled(model, device, complete);
  const Scale scale = scale_of(workload, model, device, complete);
  for (Layer& layer : workload.layers) {
    layer.forward_seconds *= scale.forward;
    layer.backward_seconds *= scale.backward;
  }
  validate(workload);
  return workload;
}

}  // namespace dear::zoo
