// Ranks that run out of data, and steps that are weighted by samples: [Note: attendance].

#include "dear/train/data_parallel/join.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/attendance.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/data_parallel_impl.h"
#include "dear/train/data_parallel/on_streams.h"
#include "dear/train/optim/torch_types.h"

namespace dear {

using agreement::Announcement;
using agreement::Call;

// A disagreement is found by ranks that wait for an announcement, and others need not.
void DataParallel::Impl::attend(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    group_.abort(error.what());
    fail(std::current_exception());
    state_.throw_if_failed();
  }
}

void DataParallel::Impl::begin_step() {
  attend([this] { attendance_.begin(); });
  require_everyone();
}

void DataParallel::Impl::require_everyone() {
  std::optional<std::string> missing;
  blocking([&] { attend([&] { missing = attendance_.missing(); }); });
  if (!missing) return;
  attendance_.in_join().over = true;
  const autograd::Unobserved unobserved;
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    torch::Tensor& gradient = scanned_.trained[i].tensor.mutable_grad();
    if (engine_ && engine_->holds_gradient(i)) {
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
  forget_arrivals();
  attendance_.leave();
  throw MismatchError(*missing);
}

void DataParallel::Impl::announce(const Announcement& what, const std::string& text) {
  const bool in_step = !agreement::outside_of_steps(what.call);
  if (in_step && attendance_.begins()) begin_step();
  if (!attendance_.joined() || attendance_.shadows()) return;
  attend([&] {
    attendance_.announce(what, [&] { return what.call == Call::step ? optimizer_->options() : text; });
  });
  if (!in_step) require_everyone();
}

// What is sent is the product with the factor: see [Note: attendance].
void DataParallel::Impl::weigh(std::size_t parameter) {
  if (attendance_.shadows() || !attendance_.first_time(parameter)) return;
  double factor = 1;
  blocking([&] { attend([&] { factor = attendance_.factor(); }); });
  if (factor == 1) return;
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = scanned_.trained[parameter].tensor.mutable_grad();
  if (factor == 0) {  // also one that is NaN, as the mean over no samples is
    gradient.zero_();
    engine_->mark_unused(parameter);
    return;
  }
  optim::ReducedGradients one;
  one.add_held(gradient.mutable_data_ptr(), gradient.numel(), *optim::dtype_of(gradient.scalar_type()));
  one.scale(factor);
}

void DataParallel::Impl::samples(std::int64_t count) {
  throw_if_failed();
  if (on_streams()) OnStreams::refuse("samples()");
  if (count < 0)
    throw ConfigError(
        fmt::format("rank {}: a step cannot have {} samples: give at least 0", group_.rank(), count));
  if (arrivals_.any() || state_.sends()) {
    const bool dropped = arrivals_.were_dropped(std::numeric_limits<std::size_t>::max(), [&](std::size_t i) {
      return !scanned_.trained[i].tensor.grad().defined();
    });
    if (!dropped)
      throw ConfigError(fmt::format(
          "rank {}: samples() comes after a gradient of its step: say how many samples a step has "
          "before its first backward",
          group_.rank()));
    or_fail([this] { arrivals_.nothing_sent() || !engine_ ? forget_arrivals() : discard(); });
  }
  attendance_.set_samples(count);
  if (group_.size() == 1 || attendance_.shadows()) return;
  if (!attendance_.joined() && !attendance_.follows()) {
    or_fail([this] {
      if (engine_) wait_for_all();
      roll_call(0);
      attendance_.follow();
    });
  }
  begin_step();
}

// ---- a rank that has run out

std::shared_ptr<agreement::RollCall> DataParallel::Impl::roll_call(std::int64_t text_bytes) {
  if (!attendance_.call() || attendance_.call()->text_bytes() < text_bytes)
    attendance_.set_call(std::make_shared<agreement::RollCall>(group_, text_bytes));
  return attendance_.call();
}

std::int64_t DataParallel::Impl::settle_for_join() {
  throw_if_failed();
  if (on_streams()) OnStreams::refuse("a Join");
  if (attendance_.joined())
    throw ConfigError(fmt::format("rank {}: a Join of this model is open: end() it first", group_.rank()));
  state_.require_between_steps("make a Join");
  if (engine_) wait_for_all();
  // They may grow where step() counts in them.
  return static_cast<std::int64_t>(optimizer_->options().size()) + (by_program() ? 4096 : 0);
}

void DataParallel::Impl::require_all_stepped() {
  throw_if_failed();
  if (!attendance_.begun()) return;
  const bool dropped =
      std::none_of(scanned_.trained.begin(), scanned_.trained.end(), [](const auto& parameter) {
        return parameter.tensor.grad().defined() &&
               parameter.tensor.grad().count_nonzero().template item<std::int64_t>() > 0;
      });
  if (!dropped)
    throw ConfigError(fmt::format(
        "rank {}: it runs out of data between backward and step(): call step(), or discard_step(), "
        "before the join ends",
        group_.rank()));
  discard_step();
}

// Every layer is reported, with marks: the reductions of the others need not wait for their step().
void DataParallel::Impl::shadow_backward() {
  if (!engine_ || engine_->updates_ahead() || state_.sends()) return;
  const autograd::Unobserved unobserved;
  wait_for_all();
  engine_->restore_parameters();
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    if (!engine_->holds_gradient(i)) engine_->restore_gradient(i);
    engine_->mark_unused(i);
    arrivals_.set_used(i, true);  // marked already
  }
  state_.pass_began(0);
  state_.pass_ended();
  for (LayerId layer = arrivals_.layers(); layer-- > 0;) engine_->conductor().backward_done(layer);
  arrivals_.all_sent();
}

void DataParallel::Impl::shadow(const Announcement& what) {
  agreement::RollCall& call = *attendance_.in_join().call;
  const auto text = [&] {
    call.pass_on(attendance_.first(), "");
    return call.passed_on();
  };
  switch (what.call) {
    case Call::nothing:
      return;
    case Call::backward_pass:
      return or_fail([this] { shadow_backward(); });
    case Call::step:
      optimizer_->set_options(text());
      ++attendance_.in_join().shadowed;
      return step();
    case Call::discard_step:
      return discard_step();
    case Call::clip_by_norm:
      clip_gradients_by_norm(what.argument, {.type = what.norm_type});
      return;
    case Call::clip_by_value:
      return clip_gradients_by_value(what.argument);
    case Call::unscale:
      unscale_gradients(what.argument);
      return;
    case Call::scale:
      return final_gradients().scale(1 / what.argument);
    case Call::reduce_gradients:
      return reduce_gradients();
    case Call::synchronize:
      return synchronize();
    case Call::broadcast_buffers:
      return broadcast_buffers();
    case Call::regroup:
      return regroup(Fusion::parse(text()));
    case Call::optimizer_state:
      static_cast<void>(optimizer_state());
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
      fmt::format("rank {}: a rank without data cannot follow {}", group_.rank(), text_of(what.call)));
}

void DataParallel::Impl::broadcast_buffers() {
  throw_if_failed();
  if (options_.buffers != BufferSync::at_forward)
    throw ConfigError(fmt::format(
        "rank {}: broadcast_buffers() is for a DataParallel whose option buffers is BufferSync::at_forward",
        group_.rank()));
  if (arrivals_.deferred() || !buffers_travel()) return;
  announce({.call = Call::broadcast_buffers});
  or_fail([this] {
    take_buffers();
    if (buffer_exchange_) buffer_exchange_->at_forward(attendance_.first());
  });
}

void DataParallel::broadcast_buffers() { impl_->broadcast_buffers(); }
void DataParallel::samples(std::int64_t count) { impl_->samples(count); }

// ---- Join

namespace {

// A rank in two of them would wait in one while its peers train in the other.
thread_local int open_joins = 0;

}  // namespace

Join::Join(DataParallel& model, const JoinOptions& options) : Join(std::vector{&model}, options) {}

Join::Join(std::vector<DataParallel*> models, const JoinOptions& options) : models_(std::move(models)) {
  if (models_.empty()) throw ConfigError("a Join of no model: name those that train in its loop");
  if (open_joins > 0)
    throw ConfigError(
        "another Join is open, and a rank that has run out could follow one of them only: make one Join of "
        "all "
        "models that train in the loop");
  const Group group = models_[0]->impl_->group();
  std::int64_t bytes = 0;
  for (DataParallel* model : models_) {
    if (model->impl_->group().size() != group.size() || model->impl_->group().rank() != group.rank())
      throw ConfigError("the models of a Join train on different ranks: make a Join for each group of ranks");
    bytes = std::max(bytes, model->impl_->settle_for_join());
  }
  if (group.size() > 1) {
    struct Wish {
      JoinOptions options;
      std::int64_t models, bytes;
    };
    const auto wishes =
        comm::all_gather_values(group, Wish{options, static_cast<std::int64_t>(models_.size()), bytes});
    for (const Wish& wish : wishes) {
      bytes = std::max(bytes, wish.bytes);
      if (wish.options.divisor != options.divisor || wish.options.uneven != options.uneven ||
          wish.models != static_cast<std::int64_t>(models_.size()))
        throw MismatchError(fmt::format(
            "rank {}: ranks make Joins with different options, or of different numbers of models: make the "
            "same on every rank",
            group.rank()));
    }
    constexpr std::int64_t kSpare = 1024;  // options may take more room later
    joined_ = std::make_shared<agreement::Joined>();
    joined_->options = options;
    joined_->call = models_[0]->impl_->roll_call(2 * bytes + kSpare);
    for (std::size_t i = 0; i < models_.size(); ++i)
      models_[i]->impl_->attendance().join(joined_, static_cast<std::uint32_t>(i));
  }
  ++open_joins;
}

Join::~Join() {
  if (!ended_) abandon("it left a Join without end(), as after an exception");
}

std::int64_t Join::shadowed() const { return joined_ ? joined_->shadowed : 0; }

void Join::abandon(const std::string& reason) noexcept {
  if (ended_) return;
  ended_ = true;
  --open_joins;
  if (!joined_ || joined_->over) return;
  for (DataParallel* model : models_) {
    model->impl_->group().abort(reason);
    model->impl_->attendance().leave();
  }
}

// What the others do, until all have run out.
void Join::follow() {
  agreement::RollCall& call = *joined_->call;
  for (;;) {
    const std::vector<Announcement> said = call.hear(call.say({}));
    agreement::require_alike(call.rank(), said);
    const std::optional<int> first = agreement::first_present(said);
    if (!first) return;
    if (joined_->options.uneven == Uneven::error) {
      joined_->over = true;
      throw MismatchError(
          fmt::format("rank {}: it has no more data after {} steps of this join, and rank {} has: the step "
                      "is given up on "
                      "every rank; give ranks equally many batches, or leave out the error",
                      call.rank(), joined_->steps, *first));
    }
    const Announcement& what = said[static_cast<std::size_t>(*first)];
    DataParallel::Impl& model = *models_.at(what.model)->impl_;
    model.attendance().set_first(*first);
    model.shadow(what);
  }
}

void Join::begin_step(std::size_t model) {
  DataParallel::Impl& one = *models_.at(model)->impl_;
  if (one.attendance().begins()) one.begin_step();
}

void Join::end() {
  if (ended_) return;
  const auto leave = [this] {
    ended_ = true;
    --open_joins;
    if (joined_) joined_->over = true;
    for (DataParallel* model : models_) model->impl_->attendance().leave();
  };
  if (!joined_ || joined_->over) return leave();
  for (DataParallel* model : models_) model->impl_->require_all_stepped();
  for (DataParallel* model : models_) model->impl_->attendance().shadow(true);
  try {
    follow();
  } catch (const std::exception& error) {
    if (!joined_->over) abandon(error.what());
    if (!ended_) leave();
    throw;
  }
  leave();
}

}  // namespace dear
