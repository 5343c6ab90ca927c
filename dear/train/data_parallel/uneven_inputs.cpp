#include "dear/train/data_parallel/uneven_inputs.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/agreement/participation.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/data_parallel/join.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

using agreement::Announcement;
using agreement::Call;

// A disagreement is found by ranks that wait for an announcement, and others need not.
void UnevenInputs::attend(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    own_.group_.abort(error.what());
    own_.fail(std::current_exception());
    own_.state_.throw_if_failed();
  }
}

void UnevenInputs::begin_step() {
  attend([this] { own_.participation_.begin(); });
  require_everyone();
}

void UnevenInputs::require_everyone() {
  std::optional<std::string> missing;
  own_.waits.blocking([&] { attend([&] { missing = own_.participation_.missing(); }); });
  if (!missing) return;
  own_.participation_.in_join().over = true;
  const autograd::Unobserved unobserved;
  for (std::size_t i = 0; i < own_.scanned_.trained.size(); ++i) {
    torch::Tensor& gradient = own_.scanned_.trained[i].tensor.mutable_grad();
    if (own_.engine_ && own_.engine_->model().holds_gradient(i)) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
  own_.passes.forget_arrivals();
  own_.participation_.leave();
  throw MismatchError(*missing);
}

void UnevenInputs::announce(const Announcement& what, const std::string& text) {
  const bool in_step = !agreement::outside_of_steps(what.call);
  if (in_step && own_.participation_.begins()) begin_step();
  if (!own_.participation_.joined() || own_.participation_.out_of_data()) return;
  attend([&] {
    own_.participation_.announce(what,
                                 [&] { return what.call == Call::step ? own_.optimizer_->options() : text; });
  });
  if (!in_step) require_everyone();
}

double UnevenInputs::factor() {
  double factor = 1;
  const double begin = now_seconds();
  own_.waits.blocking([&] { attend([&] { factor = own_.participation_.factor(); }); });
  listened_ += now_seconds() - begin;
  return factor;
}

// What is sent is the product with the factor: see [Note: participation].
void UnevenInputs::weigh(std::size_t parameter) {
  if (own_.participation_.out_of_data() || !own_.participation_.first_time(parameter)) return;
  const double factor = this->factor();
  if (factor == 1) return;
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = own_.scanned_.trained[parameter].tensor.mutable_grad();
  if (factor == 0) {  // also one that is NaN, as the mean over no samples is
    gradient.zero_();
    own_.engine_->model().mark_unused(parameter);
    return;
  }
  optim::ReducedGradients one;
  one.add_held(gradient.mutable_data_ptr(), gradient.numel(),
               *process_group::dtype_of(gradient.scalar_type()));
  one.scale(factor);
}

void UnevenInputs::begin_balance() {
  agreement::check_together(own_.group_, [this] {
    if (!own_.options_.balance) return;
    if (own_.on_streams()) StreamTraining::refuse("balance");
    shares_.emplace(*own_.options_.balance, own_.group_.size());
  });
  agree(own_.group_, "balance", shares_ ? text_of(shares_->balance()) : "none");
}

const BatchShares& UnevenInputs::batch_shares() const {
  if (!shares_) throw ConfigError("no batches are shared by speed here: give the training a balance");
  return *shares_;
}

void UnevenInputs::hear_balance() {
  if (!shares_ || own_.participation_.out_of_data()) return;
  own_.or_fail([this] {
    if (own_.participation_.samples() == agreement::kUnsaid)
      throw ConfigError(
          fmt::format("rank {}: a step of a balanced training does not say how many samples it has: call "
                      "samples() before its first backward",
                      own_.group_.rank()));
  });
  static_cast<void>(factor());
}

// A rank computes while it waits neither for collectives nor for what others say.
void UnevenInputs::end_step() {
  if (shares_) {
    const double now = now_seconds(), exposed = own_.reports.statistics().exposed_seconds;
    const double computed = now - ended_at_ - (exposed - exposed_then_) - listened_;
    const auto samples = static_cast<double>(own_.participation_.samples());
    own_.participation_.set_rate(samples > 0 && ended_at_ > 0 && computed > 0 ? samples / computed : 0);
    ended_at_ = now;
    exposed_then_ = exposed;
    listened_ = 0;
    shares_->end_step(own_.participation_.rates());
  }
  own_.participation_.end_step();
}

void UnevenInputs::samples(std::int64_t count) {
  own_.throw_if_failed();
  if (own_.on_streams()) StreamTraining::refuse("samples()");
  if (count < 0)
    throw ConfigError(
        fmt::format("rank {}: a step cannot have {} samples: give at least 0", own_.group_.rank(), count));
  if (own_.arrivals_.any() || own_.state_.sends()) {
    const bool dropped = own_.arrivals_.were_dropped(
        std::numeric_limits<std::size_t>::max(),
        [&](std::size_t i) { return !own_.scanned_.trained[i].tensor.grad().defined(); });
    if (!dropped)
      throw ConfigError(fmt::format(
          "rank {}: samples() comes after a gradient of its step: say how many samples a step has "
          "before its first backward",
          own_.group_.rank()));
    own_.or_fail([this] {
      own_.arrivals_.nothing_sent() || !own_.engine_ ? own_.passes.forget_arrivals() : own_.discard();
    });
  }
  own_.participation_.set_samples(count);
  if (own_.group_.size() == 1 || own_.participation_.out_of_data()) return;
  if (!own_.participation_.joined() && !own_.participation_.announces_every_step()) {
    own_.or_fail([this] {
      if (own_.engine_) own_.waits.wait_for_all();
      announcements(0);
      own_.participation_.announce_every_step();
    });
  }
  begin_step();
}

std::shared_ptr<agreement::Announcements> UnevenInputs::announcements(std::int64_t text_bytes) {
  if (!own_.participation_.call() || own_.participation_.call()->text_bytes() < text_bytes)
    own_.participation_.set_call(std::make_shared<agreement::Announcements>(own_.group_, text_bytes));
  return own_.participation_.call();
}

std::int64_t UnevenInputs::settle_for_join() {
  own_.throw_if_failed();
  if (own_.on_streams()) StreamTraining::refuse("a Join");
  if (own_.participation_.joined())
    throw ConfigError(
        fmt::format("rank {}: a Join of this model is open: end() it first", own_.group_.rank()));
  own_.state_.require_between_steps("make a Join");
  if (own_.engine_) own_.waits.wait_for_all();
  // They may grow where step() counts in them.
  return static_cast<std::int64_t>(own_.optimizer_->options().size()) + (own_.by_program() ? 4096 : 0);
}

void UnevenInputs::require_all_stepped() {
  own_.throw_if_failed();
  if (!own_.participation_.begun()) return;
  const bool dropped =
      std::none_of(own_.scanned_.trained.begin(), own_.scanned_.trained.end(), [](const auto& parameter) {
        return parameter.tensor.grad().defined() &&
               parameter.tensor.grad().count_nonzero().template item<std::int64_t>() > 0;
      });
  if (!dropped)
    throw ConfigError(
        fmt::format("rank {}: it runs out of data between backward and step(): call step(), or "
                    "discard_step(), "
                    "before the join ends",
                    own_.group_.rank()));
  own_.discard_step();
}

// Every layer is reported, with marks: the reductions of the others need not wait for their step().
void UnevenInputs::follow_backward() {
  if (!own_.engine_ || own_.engine_->updates_ahead() || own_.state_.sends()) return;
  const autograd::Unobserved unobserved;
  own_.waits.wait_for_all();
  own_.engine_->model().restore_parameters();
  for (std::size_t i = 0; i < own_.scanned_.trained.size(); ++i) {
    if (!own_.engine_->model().holds_gradient(i)) own_.engine_->model().restore_gradient(i);
    own_.engine_->model().mark_unused(i);
    own_.arrivals_.set_used(i, true);  // marked already
  }
  own_.state_.pass_began(0);
  own_.state_.pass_ended();
  for (LayerId layer = own_.arrivals_.layers(); layer-- > 0;) own_.engine_->conductor().backward_done(layer);
  own_.arrivals_.all_sent();
}

void UnevenInputs::follow(const Announcement& what) {
  agreement::Announcements& call = *own_.participation_.in_join().call;
  const auto text = [&] {
    call.pass_on(own_.participation_.first(), "");
    return call.passed_on();
  };
  switch (what.call) {
    case Call::nothing:
      return;
    case Call::backward_pass:
      return own_.or_fail([this] { follow_backward(); });
    case Call::step:
      own_.optimizer_->set_options(text());
      ++own_.participation_.in_join().followed;
      return own_.step();
    case Call::discard_step:
      return own_.discard_step();
    case Call::clip_by_norm:
      own_.gradient_changes.clip_gradients_by_norm(what.argument, {.type = what.norm_type});
      return;
    case Call::clip_by_value:
      return own_.gradient_changes.clip_gradients_by_value(what.argument);
    case Call::unscale:
      own_.gradient_changes.unscale_gradients(what.argument);
      return;
    case Call::scale:
      return own_.gradient_changes.final_gradients().scale(1 / what.argument);
    case Call::reduce_gradients:
      return own_.gradient_changes.reduce_gradients();
    case Call::synchronize:
      return own_.synchronize();
    case Call::broadcast_buffers:
      return own_.shared_buffers.broadcast_buffers();
    case Call::regroup:
      return own_.engines.regroup(Fusion::parse(text()));
    case Call::optimizer_state:
      static_cast<void>(own_.engines.optimizer_state());
      return;
    case Call::load_optimizer_state:
    case Call::checkpoint:
    case Call::rebuild:
    case Call::trained_parameters:
    case Call::mean_of_loss:
    case Call::make_kfac:
    case Call::step_of_kfac:
      break;
  }
  throw MismatchError(
      fmt::format("rank {}: a rank without data cannot follow {}", own_.group_.rank(), text_of(what.call)));
}

}  // namespace dear::train
