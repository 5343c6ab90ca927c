#include "dear/systems/kfac/layers.h"

#include <algorithm>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "dear/base/vocabulary/error.h"

namespace dear {

std::vector<KfacLayer> kfac_layers_of(torch::nn::Module& model) {
  std::vector<KfacLayer> layers;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const std::shared_ptr<torch::nn::Module>& owner,
                       const auto& module, std::int64_t groups) {
    if (!seen.insert(module.weight.unsafeGetTensorImpl()).second) return;
    layers.push_back({.name = name,
                      .weight = module.weight,
                      .bias = module.bias,
                      .groups = groups,
                      .in_training = [owner] { return owner->is_training(); }});
  };
  for (const auto& item : model.named_modules("model", true)) {
    const std::string& name = item.key() == "model" ? item.key() : item.key().substr(sizeof("model"));
    if (const auto* linear = item.value()->as<torch::nn::Linear>(); linear != nullptr)
      add(name, item.value(), *linear, 1);
    else if (const auto* conv = item.value()->as<torch::nn::Conv2d>(); conv != nullptr)
      add(name, item.value(), *conv, conv->options.groups());
  }
  return layers;
}

namespace systems::kfac {
namespace {

constexpr double kLargestDamping = 1e30;

// Whether `name` is the layer, or a module that the layer lies in.
bool means(const std::string& name, const std::string& layer) {
  return layer == name || layer.starts_with(name + ".");
}

// Why a layer keeps its plain gradient; "" where it does not.
std::string reason_to_leave_out(const KfacLayer& layer, const KfacOptions& options) {
  if (std::any_of(options.exclude.begin(), options.exclude.end(),
                  [&](const std::string& name) { return means(name, layer.name); }))
    return kExcluded;
  if (!layer.weight.requires_grad()) return "its weight is frozen";
  if (layer.weight.dim() != 2 && layer.weight.dim() != 4)
    return fmt::format(
        "its weight has {} dimensions: K-FAC knows those of linear layers (2) and of convolutions (4)",
        layer.weight.dim());
  if (layer.groups != 1)
    return fmt::format("it is a convolution of {} groups, whose curvature is not two factors", layer.groups);
  if (!layer.weight.is_floating_point() || !layer.weight.device().is_cpu())
    return fmt::format("its weight is of {} on {}: K-FAC takes real numbers on the CPU",
                       c10::toString(layer.weight.scalar_type()), layer.weight.device().str());
  return "";
}

void require_names(const std::vector<KfacLayer>& layers, const KfacOptions& options, int rank) {
  std::set<std::string> names;
  for (const KfacLayer& layer : layers) {
    if (layer.name.empty() || !layer.weight.defined())
      throw ConfigError(
          fmt::format("rank {}: a layer for K-FAC has no name, or no weight: give each layer both", rank));
    if (!names.insert(layer.name).second)
      throw ConfigError(fmt::format(
          "rank {}: two layers for K-FAC are called '{}': give each a name of its own", rank, layer.name));
  }
  for (const std::string& excluded : options.exclude)
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return means(excluded, name); }))
      throw ConfigError(
          fmt::format("rank {}: K-FAC is to exclude '{}', but there is no such layer: there are {}", rank,
                      excluded, fmt::join(names, ", ")));
}

}  // namespace

void validate(const KfacOptions& options) {
  if (!(options.damping > 0) || !(options.damping <= kLargestDamping))
    throw ConfigError(fmt::format("the damping of K-FAC is {}: give a number above 0 and at most {}",
                                  options.damping, kLargestDamping));
  if (!(options.ema > 0) || !(options.ema < 1))
    throw ConfigError(fmt::format(
        "the weight of the running average of K-FAC is {}: give a number above 0 and below 1", options.ema));
  if (options.kl_clip && !(*options.kl_clip > 0))
    throw ConfigError(fmt::format(
        "K-FAC cannot clip at a Kullback-Leibler divergence of {}: give a number above 0, or none",
        *options.kl_clip));
  if (options.factor_every < 1 || options.inverse_every < 1 ||
      options.inverse_every % options.factor_every != 0)
    throw ConfigError(
        fmt::format("K-FAC cannot renew factors every {} steps and inverses every {}: both are at least 1, "
                    "and the interval of inverses is a multiple of that of factors",
                    options.factor_every, options.inverse_every));
  if (options.replan_after < 0)
    throw ConfigError(
        fmt::format("K-FAC cannot plan anew after {} steps: give at least 0", options.replan_after));
}

Choice choose(const std::vector<KfacLayer>& layers, const KfacOptions& options, int rank) {
  require_names(layers, options, rank);
  Choice choice;
  for (const KfacLayer& layer : layers) {
    if (std::string reason = reason_to_leave_out(layer, options); !reason.empty()) {
      choice.left_out[layer.name] = std::move(reason);
      continue;
    }
    MatrixLayer chosen{
        .name = layer.name,
        .weight = layer.weight,
        .bias = layer.bias.defined() && layer.bias.requires_grad() ? layer.bias : torch::Tensor(),
        .in_training = layer.in_training,
        .inputs = layer.weight[0].numel(),
        .outputs = layer.weight.size(0)};
    if (chosen.bias.defined()) ++chosen.inputs;
    if (const std::int64_t largest = std::max(chosen.inputs, chosen.outputs);
        largest > options.largest_factor)
      throw ConfigError(
          fmt::format("rank {}: layer '{}' has a factor of dimension {}, more than {}, whose inverse takes "
                      "long and much memory: exclude the layer, or raise largest_factor",
                      rank, layer.name, largest, options.largest_factor));
    choice.layers.push_back(std::move(chosen));
  }
  if (choice.layers.empty())
    throw ConfigError(
        fmt::format("rank {}: the model has no layer for K-FAC to precondition: it takes Linear and Conv2d "
                    "whose weights are trained, and are not excluded",
                    rank));
  return choice;
}

}  // namespace systems::kfac
}  // namespace dear
