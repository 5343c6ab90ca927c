#include "dear/train/batch_norm/sync_batch_norm.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/batch_norm/statistics.h"

namespace dear {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A vector of one value for each channel, as `input` takes it.
Tensor along_channels(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

at::ScalarType computed_in(const Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Returns the moments of this rank's samples.
batch_norm::Statistics::Moments moments_of(const Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto wide = input.options().dtype(at::kDouble).memory_format(std::nullopt);
  if (input.numel() == 0)
    return {.count = 0, .mean = torch::zeros({channels}, wide), .squares = torch::zeros({channels}, wide)};
  const auto count = static_cast<double>(input.numel() / channels);
  const auto narrow = torch::zeros({channels}, wide.dtype(computed_in(input)));  // of the results' type
  const auto [mean, variance] = at::batch_norm_update_stats(input, narrow, narrow, 0);
  return {.count = count,
          .mean = mean.to(at::kDouble).contiguous(),
          .squares = (variance.to(at::kDouble) * count).contiguous()};
}

// A small tensor in the type in which is computed.
Tensor as_computed(const Tensor& values, const Tensor& input) {
  return values.defined() ? values.to(computed_in(input)) : values;
}

// The statistics of a batch once the ranks have told each other.
struct Batch {
  Tensor mean, variance, inverse_deviation;  // by channel
  double count, eps;
  NormGroup group;
};

// Keeps the group as long as the graph.
struct Holder : torch::CustomClassHolder {
  explicit Holder(NormGroup of) : group(std::move(of)) {}
  NormGroup group;
};

// [Note: synchronised batch normalisation] Forward, ranks tell each other count, mean and squares of their
// samples by channel; backward, the sums of the output's gradient, and of its products with the normalised
// input. All else is plain batch normalisation with given statistics. Both collectives are of a few values
// for each channel, in fp64, and are waited for: nothing can go on without them.
class Normalise : public torch::autograd::Function<Normalise> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const std::optional<Tensor>& weight_or_none,
                        const std::optional<Tensor>& bias_or_none, const Batch& batch) {
    const Tensor weight = weight_or_none.value_or(Tensor());
    const Tensor bias = bias_or_none.value_or(Tensor());
    context->save_for_backward({input, weight, batch.mean, batch.inverse_deviation});
    context->saved_data["count"] = batch.count;
    context->saved_data["eps"] = batch.eps;
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(batch.group));
    return std::get<0>(at::native_batch_norm(input, as_computed(weight, input), as_computed(bias, input),
                                             batch.mean, batch.variance, false, 0, batch.eps));
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["group"].toCapsule());
    try {
      return slopes(context, outputs[0], holder->group);
    } catch (...) {
      holder->group.translate_error(std::current_exception());
      throw;
    }
  }

 private:
  static variable_list slopes(AutogradContext* context, const Tensor& slope, const NormGroup& group) {
    if (torch::GradMode::is_enabled())
      throw ConfigError(
          "SyncBatchNorm has no second derivative: leave out create_graph, or use plain batch normalisation "
          "in models that are trained through gradients of gradients");
    const variable_list saved = context->get_saved_variables();
    const auto& [input, weight, mean, inverse_deviation] = std::tie(saved[0], saved[1], saved[2], saved[3]);
    const double count = context->saved_data["count"].toDouble();
    const Tensor scale = weight.defined() ? as_computed(weight, input) : torch::ones_like(mean);

    Tensor of_weight = torch::zeros_like(mean);
    Tensor of_bias = torch::zeros_like(mean);
    if (input.numel() > 0) {
      std::tie(std::ignore, of_weight, of_bias) =
          at::native_batch_norm_backward(slope, input, scale, {}, {}, mean, inverse_deviation, true,
                                         context->saved_data["eps"].toDouble(), {false, true, true});
    }
    constexpr bool kCopy = true;  // of_weight and of_bias stay those of this rank
    Tensor products = of_weight.to(at::kDouble, false, kCopy).contiguous();
    Tensor sums = of_bias.to(at::kDouble, false, kCopy).contiguous();
    group.statistics().sum(products, sums);
    const auto along = [&](const Tensor& values) {
      return along_channels(values.to(mean.scalar_type()), input);
    };
    const Tensor of_input = torch::addcmul(slope - along(sums / count), input - along(mean),
                                           along(-inverse_deviation.to(at::kDouble) * products / count))
                                .mul(along(scale * inverse_deviation));
    return {of_input.to(input.scalar_type()),
            weight.defined() ? of_weight.to(weight.scalar_type()) : Tensor(),
            weight.defined() ? of_bias.to(weight.scalar_type()) : Tensor(), Tensor()};
  }
};

void require_usable(const Tensor& input, const SyncBatchNormTensors& tensors,
                    const batch_norm::Statistics& ranks) {
  if (input.dim() < 2)
    throw ConfigError(fmt::format(
        "rank {}: batch normalisation of a tensor of {} dimensions: its second one has the channels",
        ranks.rank(), input.dim()));
  const auto type = input.scalar_type();
  if ((type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16) ||
      !input.device().is_cpu())
    throw ConfigError(
        fmt::format("rank {}: synchronised batch normalisation of a tensor of {} on {}: give fp16, bf16, "
                    "fp32 or fp64 on the CPU",
                    ranks.rank(), c10::toString(type), input.device().str()));
  for (const Tensor& tensor : {tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var})
    if (tensor.defined() && tensor.numel() != input.size(1))
      throw ConfigError(
          fmt::format("rank {}: batch normalisation of {} channels got {}: they must be the same",
                      ranks.rank(), tensor.numel(), input.size(1)));
}

}  // namespace

NormGroup::NormGroup(const Group& group, TranslateError translate_error)
    : statistics_(std::make_shared<batch_norm::Statistics>(group)), translate_(std::move(translate_error)) {}
void NormGroup::translate_error(const std::exception_ptr& error) const {
  if (translate_) translate_(error);
}
int NormGroup::size() const { return statistics_->size(); }

torch::Tensor sync_batch_norm(const torch::Tensor& input, const SyncBatchNormTensors& tensors,
                              double momentum, double eps, const NormGroup& group) {
  require_usable(input, tensors, group.statistics());
  const auto moments = [&] {
    const torch::NoGradGuard no_grad;
    return group.statistics().joined(moments_of(input.detach()));
  }();
  if (moments.count == 1)
    throw ConfigError(
        fmt::format("rank {}: all ranks together have one value for each channel, which has no variance: "
                    "give more than one sample in training",
                    group.statistics().rank()));
  const double count = std::max(moments.count, 1.0);
  const auto type = computed_in(input);
  if (tensors.running_mean.defined() && moments.count > 0) {
    const torch::NoGradGuard no_grad;
    const auto follow = [&](Tensor running, const Tensor& now) {
      running.mul_(1 - momentum).add_(now.to(running.scalar_type()), momentum);
    };
    follow(tensors.running_mean, moments.mean);
    follow(tensors.running_var, moments.squares / (count - 1));
  }
  const Tensor variance = moments.squares / count;
  const Batch batch{.mean = moments.mean.to(type),
                    .variance = variance.to(type),
                    .inverse_deviation = (variance + eps).rsqrt().to(type),
                    .count = count,
                    .eps = eps,
                    .group = group};
  const auto given = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return Normalise::apply(input, given(tensors.weight), given(tensors.bias), batch);
}

SyncBatchNormImpl::SyncBatchNormImpl(std::int64_t features, NormGroup group,
                                     const SyncBatchNormOptions& options)
    : features_(features), group_(std::move(group)), options_(options) {
  SyncBatchNormImpl::reset();
}

void SyncBatchNormImpl::reset() {
  if (options_.affine) {
    weight = register_parameter("weight", torch::ones({features_}));
    bias = register_parameter("bias", torch::zeros({features_}));
  }
  if (options_.track_running_stats) {
    running_mean = register_buffer("running_mean", torch::zeros({features_}));
    running_var = register_buffer("running_var", torch::ones({features_}));
    num_batches_tracked = register_buffer("num_batches_tracked", torch::tensor(0, torch::kLong));
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("dear::SyncBatchNorm({}, eps={}, momentum={}, affine={}, track_running_stats={})",
                        features_, options_.eps,
                        options_.momentum ? fmt::format("{}", *options_.momentum) : "none", options_.affine,
                        options_.track_running_stats);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  double momentum = options_.momentum.value_or(0);
  if (is_training() && options_.track_running_stats) {
    num_batches_tracked += 1;
    if (!options_.momentum) momentum = 1 / num_batches_tracked.item<double>();
  }
  if (!is_training() || group_.size() == 1)
    return torch::batch_norm(input, weight, bias, running_mean, running_var,
                             is_training() || !options_.track_running_stats, momentum, options_.eps, false);
  return sync_batch_norm(
      input, {.weight = weight, .bias = bias, .running_mean = running_mean, .running_var = running_var},
      momentum, options_.eps, group_);
}

}  // namespace dear
