#include "dear/train/data_parallel/gradient_changes.h"

#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/on_streams.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/optim/torch_types.h"

namespace dear::train {

namespace {

constexpr const char* kClipByNorm = "clip_gradients_by_norm";
constexpr const char* kClipByValue = "clip_gradients_by_value";
constexpr const char* kUnscale = "unscale_gradients";
constexpr const char* kReduce = "reduce_gradients";

}  // namespace

GradientChanges::GradientChanges(Trainer& own) : own_(own), sums_(own.group_) {}

// [Note: closed] Clipping needs the means of all gradients before the first update. So it does what step()
// does first: makes the engine or takes over what was replaced, marks what was not used, reports all layers.
// Then it waits for the reductions, and carries out now those that the schedule puts behind the commit; the
// commit finds them done. Each rank computes with the elements that it counts, and changes those that it
// updates ([Note: counted and held]); one small all-gather makes of the parts one number, the same on each.
void GradientChanges::require_changeable_gradients(const char* call) const {
  own_.state_.throw_if_failed();
  if (own_.updates_in_backward_)
    throw ConfigError(
        fmt::format("rank {}: {}() comes too late for policy dear-eager, which updates parameters during the "
                    "backward pass: train "
                    "with policy dear",
                    own_.group_.rank(), call));
  if (own_.options_.compression)
    throw ConfigError(fmt::format(
        "rank {}: {}() cannot see gradients that travel compressed, which are whole only after step(): "
        "train without compression",
        own_.group_.rank(), call));
}

// Alone, gradients are the program's own tensors: those that are not one piece of memory are made so.
optim::ReducedGradients& GradientChanges::final_gradients() {
  own_.throw_if_failed();
  own_.program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (!own_.alone_) {
    own_.require_step();
    optim::ReducedGradients* found = nullptr;
    own_.or_fail([&] {
      own_.close_gradients();
      found = &own_.engine_->reduce_gradients();
    });
    return *found;
  }
  own_.watching_.look_at_all_alone(own_.scanned_.trained, own_.steps_alone_);
  const torch::NoGradGuard no_grad;
  gradients_alone_ = {};
  for (TrainedParameter& parameter : own_.scanned_.trained) {
    torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      gradient = gradient.coalesce();
    } else if (!gradient.is_non_overlapping_and_dense()) {
      gradient = gradient.contiguous();
    }
    const torch::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
    const DType dtype = optim::dtype_of(values.scalar_type()).value_or(DType::u8);
    gradients_alone_.add_counted(values.mutable_data_ptr(), values.numel(), dtype);
    gradients_alone_.add_held(values.mutable_data_ptr(), values.numel(), dtype);
  }
  return gradients_alone_;
}

double GradientChanges::sum_over_ranks(const agreement::CallMade& call, double mine,
                                       agreement::SumOverRanks::As as) {
  double all = mine;
  own_.or_fail([&] { all = sums_.of(call, mine, as); });
  return all;
}

// On streams, too, hosts compare what they call: they wait for each other, not for the device.
void GradientChanges::change_on_streams(agreement::CallMade call,
                                        const std::function<void(streams::GradientsOnStream&)>& change) {
  streams::GradientsOnStream gradients = OnStreams::final_gradients(own_);
  call.steps = own_.record_.commits(own_.engine_.get());
  sum_over_ranks(call, 0);
  own_.or_fail([&] { change(gradients); });
}

torch::Tensor GradientChanges::clip_gradients(double max_norm, const NormOptions& options) {
  if (!own_.on_streams()) return torch::tensor(clip_gradients_by_norm(max_norm, options), torch::kDouble);
  require_clippable(max_norm, options);
  torch::Tensor norm;
  change_on_streams(
      {.call = agreement::Call::clip_by_norm, .argument = max_norm, .more = options.type},
      [&](auto& gradients) { norm = gradients.clip(max_norm, options.type, options.error_if_nonfinite); });
  return norm;
}

void GradientChanges::require_clippable(double max_norm, const NormOptions& options) const {
  require_changeable_gradients(kClipByNorm);
  if (!(max_norm >= 0))
    throw ConfigError(
        fmt::format("rank {}: gradients cannot have a norm of at most {}: give a number of at least 0",
                    own_.group_.rank(), max_norm));
  if (!(options.type > 0))
    throw ConfigError(
        fmt::format("rank {}: there is no norm of type {} to clip by: give a number above 0, or infinity",
                    own_.group_.rank(), options.type));
}

void GradientChanges::require_finite_norm(double norm) const {
  if (std::isfinite(norm)) return;
  throw ConfigError(fmt::format(
      "rank {}: the norm of the gradients is {}, so they cannot be clipped: give up the step with "
      "discard_step() on every rank, or leave out error_if_nonfinite",
      own_.group_.rank(), norm));
}

double GradientChanges::clip_gradients_by_norm(double max_norm, const NormOptions& options) {
  require_clippable(max_norm, options);
  if (own_.on_streams()) {
    const double norm = clip_gradients(max_norm, options).item<double>();
    if (options.error_if_nonfinite) require_finite_norm(norm);
    own_.watching_.listeners().clipped(norm);
    return norm;
  }
  own_.uneven_inputs.announce(
      {.call = agreement::Call::clip_by_norm, .argument = max_norm, .norm_type = options.type});
  optim::ReducedGradients& gradients = final_gradients();
  const bool largest = std::isinf(options.type);
  const double sum =
      sum_over_ranks({.call = agreement::Call::clip_by_norm,
                      .steps = own_.record_.commits(own_.engine_.get()),
                      .argument = max_norm,
                      .more = options.type},
                     gradients.power_sum(options.type),
                     largest ? agreement::SumOverRanks::As::largest : agreement::SumOverRanks::As::sum);
  const double norm = largest || options.type == 1 ? sum
                      : options.type == 2          ? std::sqrt(sum)
                                                   : std::pow(sum, 1 / options.type);
  if (options.error_if_nonfinite) require_finite_norm(norm);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) gradients.scale(factor);
  own_.watching_.listeners().clipped(norm);
  return norm;
}

void GradientChanges::clip_gradients_by_value(double limit) {
  require_changeable_gradients(kClipByValue);
  if (!(limit >= 0))
    throw ConfigError(fmt::format("rank {}: gradients cannot be at most {}: give a number of at least 0",
                                  own_.group_.rank(), limit));
  if (own_.on_streams())
    return change_on_streams({.call = agreement::Call::clip_by_value, .argument = limit},
                             [&](auto& gradients) { gradients.clamp(limit); });
  own_.uneven_inputs.announce({.call = agreement::Call::clip_by_value, .argument = limit});
  optim::ReducedGradients& gradients = final_gradients();
  sum_over_ranks({.call = agreement::Call::clip_by_value,
                  .steps = own_.record_.commits(own_.engine_.get()),
                  .argument = limit},
                 0);
  gradients.clamp(limit);
}

bool GradientChanges::unscale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  if (!(loss_scale > 0) || !std::isfinite(loss_scale))
    throw ConfigError(fmt::format("rank {}: a loss cannot be scaled by {}: give a finite number above 0",
                                  own_.group_.rank(), loss_scale));
  if (own_.on_streams())
    return unscale_gradients_by(torch::tensor(1 / loss_scale, torch::kDouble)).item<float>() == 0;
  own_.uneven_inputs.announce({.call = agreement::Call::unscale, .argument = loss_scale});
  optim::ReducedGradients& gradients = final_gradients();
  const double not_finite = gradients.all_finite() ? 0 : 1;
  gradients.scale(1 / loss_scale);
  return sum_over_ranks({.call = agreement::Call::unscale,
                         .steps = own_.record_.commits(own_.engine_.get()),
                         .argument = loss_scale},
                        not_finite) == 0;
}

void GradientChanges::reduce_gradients(const std::optional<KfacNumbers>& kfac) {
  agreement::CallMade call{.call = agreement::Call::reduce_gradients};
  if (kfac)
    call = {
        .call = agreement::Call::step_of_kfac, .argument = kfac->loss_scale, .more = kfac->learning_rates};
  require_changeable_gradients(kReduce);
  if (own_.on_streams()) {
    change_on_streams(call, [](auto&) {});
    return make_whole();
  }
  own_.uneven_inputs.announce({.call = agreement::Call::reduce_gradients});
  static_cast<void>(final_gradients());
  call.steps = own_.record_.commits(own_.engine_.get());
  sum_over_ranks(call, 0);
  if (!own_.alone_) make_whole();
}

double GradientChanges::mean_over_ranks(double mine) {
  own_.throw_if_failed();
  return sum_over_ranks(
             {.call = agreement::Call::mean_of_loss, .steps = own_.record_.commits(own_.engine_.get())},
             mine) /
         own_.group_.size();
}

void GradientChanges::make_whole() {
  own_.or_fail([this] {
    own_.engine_->gather_gradients();
    if (own_.engine_->by_program()) own_.engine_->give_gradients_to_program();
  });
  own_.whole_gradients_ = true;
}

// As unscale_gradients(1), which is what ranks without data do meanwhile.
bool GradientChanges::give_up_nonfinite() {
  if (own_.options_.check_gradients != GradientCheck::skip || own_.attendance_.shadows()) return false;
  own_.uneven_inputs.announce({.call = agreement::Call::unscale, .argument = 1});
  static_cast<void>(final_gradients());
  const double found = sum_over_ranks(
      {.call = agreement::Call::unscale, .steps = own_.record_.commits(own_.engine_.get()), .argument = 1},
      own_.watching_.nonfinite().empty() ? 0 : 1);
  if (found == 0) return false;
  if (!own_.attendance_.joined()) own_.or_fail([this] { own_.watching_.share(own_.group_); });
  own_.discard_step();
  return true;
}

void GradientChanges::scale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  agreement::CallMade call{.call = agreement::Call::scale, .argument = loss_scale};
  if (own_.on_streams())
    return change_on_streams(call, [&](auto& gradients) { gradients.scale(1 / loss_scale); });
  own_.uneven_inputs.announce({.call = agreement::Call::scale, .argument = loss_scale});
  optim::ReducedGradients& gradients = final_gradients();
  call.steps = own_.record_.commits(own_.engine_.get());
  sum_over_ranks(call, 0);
  gradients.scale(1 / loss_scale);
}

torch::Tensor GradientChanges::unscale_gradients_by(const torch::Tensor& inverse_scale) {
  if (!own_.on_streams())
    return torch::tensor(
        unscale_gradients(inverse_scale.defined() ? 1 / inverse_scale.item<double>() : 1) ? 0.0F : 1.0F);
  require_changeable_gradients("unscale_gradients_by");
  streams::GradientsOnStream gradients = OnStreams::final_gradients(own_);
  torch::Tensor nonfinite;
  own_.or_fail([&] {
    nonfinite = gradients.nonfinite();
    if (inverse_scale.defined()) gradients.scale(inverse_scale);
  });
  return nonfinite;
}

}  // namespace dear::train
