#include "dear/train/data_parallel/gradient_changes.h"

#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/streams/gradients_on_stream.h"

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
  own_.monitoring_.look_at_all_alone(own_.scanned_.trained, own_.steps_alone_);
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
    const DType dtype = process_group::dtype_of(values.scalar_type()).value_or(DType::u8);
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

class GradientChanges::OnHost : public FinalGradients {
 public:
  OnHost(GradientChanges& changes, optim::ReducedGradients& gradients)
      : changes_(changes), gradients_(gradients) {}

  torch::Tensor clip(const agreement::CallMade& call, double max_norm, const NormOptions& options) override {
    const bool largest = std::isinf(options.type);
    const double sum = changes_.sum_over_ranks(
        call, gradients_.power_sum(options.type),
        largest ? agreement::SumOverRanks::As::largest : agreement::SumOverRanks::As::sum);
    const double norm = largest || options.type == 1 ? sum
                        : options.type == 2          ? std::sqrt(sum)
                                                     : std::pow(sum, 1 / options.type);
    if (options.error_if_nonfinite) changes_.require_finite_norm(norm);
    const double factor = max_norm / (norm + 1e-6);
    if (!(factor >= 1)) gradients_.scale(factor);
    return torch::tensor(norm, torch::kDouble);
  }
  void clamp(const agreement::CallMade& call, double limit) override {
    changes_.sum_over_ranks(call, 0);
    gradients_.clamp(limit);
  }
  void scale(const agreement::CallMade& call, double factor) override {
    changes_.sum_over_ranks(call, 0);
    gradients_.scale(factor);
  }
  torch::Tensor unscale(const agreement::CallMade& call, double loss_scale) override {
    const double not_finite = gradients_.all_finite() ? 0 : 1;
    gradients_.scale(1 / loss_scale);
    return torch::tensor(changes_.sum_over_ranks(call, not_finite) == 0 ? 0.0F : 1.0F);
  }
  void leave(const agreement::CallMade& call) override { changes_.sum_over_ranks(call, 0); }

 private:
  GradientChanges& changes_;
  optim::ReducedGradients& gradients_;
};

// Hosts compare what they call: they wait for each other, not for the device.
class GradientChanges::OnDevice : public FinalGradients {
 public:
  OnDevice(GradientChanges& changes, streams::GradientsOnStream gradients)
      : changes_(changes), gradients_(std::move(gradients)) {}

  torch::Tensor clip(const agreement::CallMade& call, double max_norm, const NormOptions& options) override {
    torch::Tensor norm;
    change(call, [&] { norm = gradients_.clip(max_norm, options.type, options.error_if_nonfinite); });
    return norm;
  }
  void clamp(const agreement::CallMade& call, double limit) override {
    change(call, [&] { gradients_.clamp(limit); });
  }
  void scale(const agreement::CallMade& call, double factor) override {
    change(call, [&] { gradients_.scale(factor); });
  }
  torch::Tensor unscale(const agreement::CallMade& /*call*/, double loss_scale) override {
    return unscale_by(torch::tensor(1 / loss_scale, torch::kDouble));
  }
  // Ranks tell each other on the device whether all are finite; hosts wait for nothing.
  torch::Tensor unscale_by(const torch::Tensor& inverse_scale) {
    torch::Tensor nonfinite;
    changes_.own_.or_fail([&] {
      nonfinite = gradients_.nonfinite();
      if (inverse_scale.defined()) gradients_.scale(inverse_scale);
    });
    return nonfinite;
  }
  void leave(const agreement::CallMade& call) override {
    change(call, [] {});
  }

 private:
  template <typename Change>
  void change(const agreement::CallMade& call, Change change) {
    changes_.sum_over_ranks(call, 0);
    changes_.own_.or_fail(change);
  }

  GradientChanges& changes_;
  streams::GradientsOnStream gradients_;
};

std::unique_ptr<FinalGradients> GradientChanges::close(agreement::CallMade& call) {
  own_.uneven_inputs.announce({.call = call.call, .argument = call.argument, .norm_type = call.more});
  std::unique_ptr<FinalGradients> closed;
  if (own_.on_streams()) {
    closed = std::make_unique<OnDevice>(*this, StreamTraining::final_gradients(own_));
  } else {
    closed = std::make_unique<OnHost>(*this, final_gradients());
  }
  call.steps = own_.record_.commits(own_.engine_.get());
  return closed;
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

torch::Tensor GradientChanges::clip(double max_norm, const NormOptions& options) {
  require_clippable(max_norm, options);
  agreement::CallMade call{.call = agreement::Call::clip_by_norm, .argument = max_norm, .more = options.type};
  return close(call)->clip(call, max_norm, options);
}

torch::Tensor GradientChanges::clip_gradients(double max_norm, const NormOptions& options) {
  torch::Tensor norm = clip(max_norm, options);
  if (norm.is_cpu()) own_.monitoring_.listeners().clipped(norm.item<double>());
  return norm;
}

double GradientChanges::clip_gradients_by_norm(double max_norm, const NormOptions& options) {
  const double norm = clip(max_norm, options).item<double>();
  if (options.error_if_nonfinite) require_finite_norm(norm);
  own_.monitoring_.listeners().clipped(norm);
  return norm;
}

void GradientChanges::clip_gradients_by_value(double limit) {
  require_changeable_gradients(kClipByValue);
  if (!(limit >= 0))
    throw ConfigError(fmt::format("rank {}: gradients cannot be at most {}: give a number of at least 0",
                                  own_.group_.rank(), limit));
  agreement::CallMade call{.call = agreement::Call::clip_by_value, .argument = limit};
  close(call)->clamp(call, limit);
}

bool GradientChanges::unscale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  if (!(loss_scale > 0) || !std::isfinite(loss_scale))
    throw ConfigError(fmt::format("rank {}: a loss cannot be scaled by {}: give a finite number above 0",
                                  own_.group_.rank(), loss_scale));
  agreement::CallMade call{.call = agreement::Call::unscale, .argument = loss_scale};
  return close(call)->unscale(call, loss_scale).item<float>() == 0;
}

void GradientChanges::reduce_gradients(const std::optional<KfacNumbers>& kfac) {
  require_changeable_gradients(kReduce);
  agreement::CallMade call{.call = agreement::Call::reduce_gradients};
  const std::unique_ptr<FinalGradients> gradients = close(call);
  if (kfac) {  // to ranks without data it is the same
    call.call = agreement::Call::step_of_kfac;
    call.argument = kfac->loss_scale;
    call.more = kfac->learning_rates;
  }
  gradients->leave(call);
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
    if (own_.engine_->updates().by_program()) own_.engine_->give_gradients_to_program();
  });
  own_.whole_gradients_ = true;
}

// As unscale_gradients(1), which is what ranks without data do meanwhile.
bool GradientChanges::give_up_nonfinite() {
  if (own_.options_.check_gradients != GradientCheck::skip || own_.participation_.out_of_data()) return false;
  own_.uneven_inputs.announce({.call = agreement::Call::unscale, .argument = 1});
  static_cast<void>(final_gradients());
  const double found = sum_over_ranks(
      {.call = agreement::Call::unscale, .steps = own_.record_.commits(own_.engine_.get()), .argument = 1},
      own_.monitoring_.nonfinite().empty() ? 0 : 1);
  if (found == 0) return false;
  if (!own_.participation_.joined()) own_.or_fail([this] { own_.monitoring_.share(own_.group_); });
  own_.discard_step();
  return true;
}

void GradientChanges::scale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  agreement::CallMade call{.call = agreement::Call::scale, .argument = loss_scale};
  close(call)->scale(call, 1 / loss_scale);
}

torch::Tensor GradientChanges::unscale_gradients_by(const torch::Tensor& inverse_scale) {
  if (!own_.on_streams())
    return torch::tensor(
        unscale_gradients(inverse_scale.defined() ? 1 / inverse_scale.item<double>() : 1) ? 0.0F : 1.0F);
  require_changeable_gradients("unscale_gradients_by");
  return OnDevice(*this, StreamTraining::final_gradients(own_)).unscale_by(inverse_scale);
}

}  // namespace dear::train
