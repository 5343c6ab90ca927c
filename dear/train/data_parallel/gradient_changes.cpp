// What a program does to whole gradients between backward and step(): clipping, and the scale of the loss.

#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/on_streams.h"
#include "dear/train/optim/torch_types.h"

namespace dear {
namespace {

constexpr const char* kClipByNorm = "clip_gradients_by_norm";
constexpr const char* kClipByValue = "clip_gradients_by_value";
constexpr const char* kUnscale = "unscale_gradients";
constexpr const char* kReduce = "reduce_gradients";

}  // namespace

// [Note: closed] Clipping needs the means of all gradients before the first update. So it does what step()
// does first: makes the engine or takes over what was replaced, marks what was not used, reports all layers.
// Then it waits for the reductions, and carries out now those that the schedule puts behind the commit; the
// commit finds them done. Each rank computes with the elements that it counts, and changes those that it
// updates ([Note: counted and held]); one small all-gather makes of the parts one number, the same on each.

void DataParallel::Impl::require_changeable_gradients(const char* call) const {
  state_.throw_if_failed();
  if (updates_in_backward_)
    throw ConfigError(
        fmt::format("rank {}: {}() comes too late for policy dear-eager, which updates parameters during the "
                    "backward pass: train "
                    "with policy dear",
                    group_.rank(), call));
  if (options_.compression)
    throw ConfigError(fmt::format(
        "rank {}: {}() cannot see gradients that travel compressed, which are whole only after step(): "
        "train without compression",
        group_.rank(), call));
}

void DataParallel::Impl::prepare_commit() {
  if (!engine_) {
    require_unwritten();
    for (std::size_t i = 0; i < scanned_.trained.size(); ++i)
      arrivals_.set_used(i, scanned_.trained[i].tensor.grad().defined());
    fusion_ =
        changes_->first(train::Engine::describe(scanned_.trained, layers_.order, layers_.layer_of), fusion_);
    if (on_streams()) OnStreams::find_idle(*this);
    make_first_engine();
    observed_engine_.store(engine_.get(), std::memory_order_release);
  } else {
    await_last_step();
    require_unwritten();
    take_over_replaced();
  }
  if (state_.now() == autograd::IterationState::State::closed) return;  // reduced, marks and all
  look_at_other_buckets();
  bool lost = false;
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    arrivals_.used(i) ? weigh(i) : engine_->mark_unused(i);
    lost = lost || (!arrivals_.used(i) && arrivals_.expected(i) > 0);
  }
  if (lost) require_same_model();
}

// It takes the optimiser's state, where updates are of shards.
void DataParallel::Impl::make_first_engine() {
  if (by_program()) {
    engine_ = make_engine();
    if (restored_) std::exchange(restored_, nullptr)->give();
    return;
  }
  const auto states = restored_
                          ? train::States()
                          : train::initial_state(group_, *optimizer_, train::tensors_of(scanned_.trained));
  const auto of_frozen = train::initial_state(group_, *optimizer_, scanned_.frozen);
  for (std::size_t i = 0; i < of_frozen.size(); ++i)
    if (of_frozen[i]) kept_.keep(scanned_.frozen[i], *of_frozen[i]);
  engine_ = make_engine();
  restored_ ? std::exchange(restored_, nullptr)->give() : engine_->take_over(states);
  optimizer_->state_leaves();
}

void DataParallel::Impl::close_gradients() {
  prepare_commit();
  if (state_.now() == autograd::IterationState::State::closed) return;
  follow_program();
  if (group_.size() > 1) {
    for (LayerId layer = arrivals_.layers(); layer-- > 0;)
      if (!arrivals_.layer_sent(layer)) engine_->conductor().backward_done(layer);
  }
  state_.closed();
  arrivals_.all_sent();
}

// Alone, gradients are the program's own tensors: those that are not one piece of memory are made so.
optim::ReducedGradients& DataParallel::Impl::final_gradients() {
  throw_if_failed();
  program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (!alone_) {
    require_step();
    optim::ReducedGradients* found = nullptr;
    or_fail([&] {
      close_gradients();
      found = &engine_->reduce_gradients();
    });
    return *found;
  }
  watching_.look_at_all_alone(scanned_.trained, steps_alone_);
  const torch::NoGradGuard no_grad;
  gradients_alone_ = {};
  for (train::TrainedParameter& parameter : scanned_.trained) {
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

double DataParallel::Impl::sum_over_ranks(const agreement::CallMade& call, double mine,
                                          agreement::SumOverRanks::As as) {
  double all = mine;
  or_fail([&] { all = sums_.of(call, mine, as); });
  return all;
}

// On streams, too, hosts compare what they call: they wait for each other, not for the device.
void DataParallel::Impl::change_on_streams(agreement::CallMade call,
                                           const std::function<void(streams::GradientsOnStream&)>& change) {
  streams::GradientsOnStream gradients = OnStreams::final_gradients(*this);
  call.steps = record_.commits(engine_.get());
  sum_over_ranks(call, 0);
  or_fail([&] { change(gradients); });
}

torch::Tensor DataParallel::Impl::clip_gradients(double max_norm, const NormOptions& options) {
  if (!on_streams()) return torch::tensor(clip_gradients_by_norm(max_norm, options), torch::kDouble);
  require_clippable(max_norm, options);
  torch::Tensor norm;
  change_on_streams(
      {.call = agreement::Call::clip_by_norm, .argument = max_norm, .more = options.type},
      [&](auto& gradients) { norm = gradients.clip(max_norm, options.type, options.error_if_nonfinite); });
  return norm;
}

void DataParallel::Impl::require_clippable(double max_norm, const NormOptions& options) const {
  require_changeable_gradients(kClipByNorm);
  if (!(max_norm >= 0))
    throw ConfigError(
        fmt::format("rank {}: gradients cannot have a norm of at most {}: give a number of at least 0",
                    group_.rank(), max_norm));
  if (!(options.type > 0))
    throw ConfigError(
        fmt::format("rank {}: there is no norm of type {} to clip by: give a number above 0, or infinity",
                    group_.rank(), options.type));
}

void DataParallel::Impl::require_finite_norm(double norm) const {
  if (std::isfinite(norm)) return;
  throw ConfigError(fmt::format(
      "rank {}: the norm of the gradients is {}, so they cannot be clipped: give up the step with "
      "discard_step() on every rank, or leave out error_if_nonfinite",
      group_.rank(), norm));
}

double DataParallel::Impl::clip_gradients_by_norm(double max_norm, const NormOptions& options) {
  require_clippable(max_norm, options);
  if (on_streams()) {
    const double norm = clip_gradients(max_norm, options).item<double>();
    if (options.error_if_nonfinite) require_finite_norm(norm);
    watching_.listeners().clipped(norm);
    return norm;
  }
  announce({.call = agreement::Call::clip_by_norm, .argument = max_norm, .norm_type = options.type});
  optim::ReducedGradients& gradients = final_gradients();
  const bool largest = std::isinf(options.type);
  const double sum =
      sum_over_ranks({.call = agreement::Call::clip_by_norm,
                      .steps = record_.commits(engine_.get()),
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
  watching_.listeners().clipped(norm);
  return norm;
}

void DataParallel::Impl::clip_gradients_by_value(double limit) {
  require_changeable_gradients(kClipByValue);
  if (!(limit >= 0))
    throw ConfigError(fmt::format("rank {}: gradients cannot be at most {}: give a number of at least 0",
                                  group_.rank(), limit));
  if (on_streams())
    return change_on_streams({.call = agreement::Call::clip_by_value, .argument = limit},
                             [&](auto& gradients) { gradients.clamp(limit); });
  announce({.call = agreement::Call::clip_by_value, .argument = limit});
  optim::ReducedGradients& gradients = final_gradients();
  sum_over_ranks(
      {.call = agreement::Call::clip_by_value, .steps = record_.commits(engine_.get()), .argument = limit},
      0);
  gradients.clamp(limit);
}

bool DataParallel::Impl::unscale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  if (!(loss_scale > 0) || !std::isfinite(loss_scale))
    throw ConfigError(fmt::format("rank {}: a loss cannot be scaled by {}: give a finite number above 0",
                                  group_.rank(), loss_scale));
  if (on_streams())
    return unscale_gradients_by(torch::tensor(1 / loss_scale, torch::kDouble)).item<float>() == 0;
  announce({.call = agreement::Call::unscale, .argument = loss_scale});
  optim::ReducedGradients& gradients = final_gradients();
  const double not_finite = gradients.all_finite() ? 0 : 1;
  gradients.scale(1 / loss_scale);
  return sum_over_ranks({.call = agreement::Call::unscale,
                         .steps = record_.commits(engine_.get()),
                         .argument = loss_scale},
                        not_finite) == 0;
}

void DataParallel::Impl::reduce_gradients(const std::optional<KfacNumbers>& kfac) {
  agreement::CallMade call{.call = agreement::Call::reduce_gradients};
  if (kfac)
    call = {
        .call = agreement::Call::step_of_kfac, .argument = kfac->loss_scale, .more = kfac->learning_rates};
  require_changeable_gradients(kReduce);
  if (on_streams()) {
    change_on_streams(call, [](auto&) {});
    return make_whole();
  }
  announce({.call = agreement::Call::reduce_gradients});
  static_cast<void>(final_gradients());
  call.steps = record_.commits(engine_.get());
  sum_over_ranks(call, 0);
  if (!alone_) make_whole();
}

double DataParallel::Impl::mean_over_ranks(double mine) {
  throw_if_failed();
  return sum_over_ranks({.call = agreement::Call::mean_of_loss, .steps = record_.commits(engine_.get())},
                        mine) /
         group_.size();
}

void DataParallel::Impl::make_whole() {
  or_fail([this] {
    engine_->gather_gradients();
    if (engine_->by_program()) engine_->give_gradients_to_program();
  });
  whole_gradients_ = true;
}

// As unscale_gradients(1), which is what ranks without data do meanwhile.
bool DataParallel::Impl::give_up_nonfinite() {
  if (options_.check_gradients != GradientCheck::skip || attendance_.shadows()) return false;
  announce({.call = agreement::Call::unscale, .argument = 1});
  static_cast<void>(final_gradients());
  const double found = sum_over_ranks(
      {.call = agreement::Call::unscale, .steps = record_.commits(engine_.get()), .argument = 1},
      watching_.nonfinite().empty() ? 0 : 1);
  if (found == 0) return false;
  if (!attendance_.joined()) or_fail([this] { watching_.share(group_); });
  discard_step();
  return true;
}

void DataParallel::Impl::scale_gradients(double loss_scale) {
  require_changeable_gradients(kUnscale);
  agreement::CallMade call{.call = agreement::Call::scale, .argument = loss_scale};
  if (on_streams()) return change_on_streams(call, [&](auto& gradients) { gradients.scale(1 / loss_scale); });
  announce({.call = agreement::Call::scale, .argument = loss_scale});
  optim::ReducedGradients& gradients = final_gradients();
  call.steps = record_.commits(engine_.get());
  sum_over_ranks(call, 0);
  gradients.scale(1 / loss_scale);
}

bool DataParallel::Impl::step(const StepOptions& options) {
  watching_.listeners().scaled(options.loss_scale);
  bool given_up = give_up_nonfinite();
  if (given_up) {
    // Nothing is left to look at.
  } else if (options.skip_nonfinite) {
    if (!unscale_gradients(options.loss_scale)) {
      discard_step();
      given_up = true;
    }
  } else if (options.loss_scale != 1) {
    scale_gradients(options.loss_scale);
  }
  if (!given_up) take_step();
  watching_.listeners().step_ended();
  return !given_up;
}

bool DataParallel::step(const StepOptions& options) { return impl_->step(options); }
double DataParallel::clip_gradients_by_norm(double max_norm, const NormOptions& options) {
  return impl_->clip_gradients_by_norm(max_norm, options);
}
void DataParallel::reduce_gradients() { impl_->reduce_gradients(); }
double DataParallel::mean_over_ranks(double mine) { return impl_->mean_over_ranks(mine); }
void DataParallel::clip_gradients_by_value(double limit) { impl_->clip_gradients_by_value(limit); }
bool DataParallel::unscale_gradients(double loss_scale) { return impl_->unscale_gradients(loss_scale); }

}  // namespace dear
