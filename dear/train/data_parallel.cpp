#include "dear/train/data_parallel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "dear/base/error.h"
#include "dear/collective/exchange.h"
#include "dear/schedule/policy/policy.h"
#include "dear/train/data_parallel_impl.h"

namespace dear {
namespace {

class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    arrived_();
    return outputs;
  }

 private:
  std::function<void()> arrived_;
};

std::string choice_of_buckets(const DataParallelOptions& options) {
  const std::string after = fmt::format("after {} steps", options.profile_steps);
  if (options.planned) return "planned " + after;
  if (options.fusion) return fmt::format("{}, profile {}", options.fusion->text(), after);
  const TuningOptions& tuning = options.tuning;
  return fmt::format("tuned {}, {} first, by {}, {}", after, tuning.start.text(), tuning.method,
                     tuning.cache.empty() ? "no cache" : "with a cache");
}

}  // namespace

DataParallel::Impl::Hook::Hook(const at::Tensor& parameter, std::function<void()> arrived)
    : accumulator_(torch::autograd::impl::grad_accumulator(parameter)),
      key_(accumulator_->add_post_hook(std::make_unique<GradientHook>(std::move(arrived)))) {}

DataParallel::Impl::Hook::~Hook() {
  if (accumulator_) accumulator_->del_post_hook(key_);
}

DataParallel::Impl::Impl(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
                         DataParallelOptions options)
    : group_(std::move(group)), optimizer_(optimizer), options_(std::move(options)) {
  const train::Unobserved unobserved;
  check_together([&] {
    find_training_policy(options_.policy);
    if (options_.profile_steps < 1)
      throw ConfigError(
          fmt::format("profile_steps is {}: at least 1 must be measured", options_.profile_steps));
    train::ElementwiseOptimizer::require_supported(optimizer);
    scanned_ = train::scan(model, optimizer);
  });
  agree_on_copies();
  train::require_alike(group_, model, optimizer, scanned_);

  std::vector<torch::Tensor> everything = scanned_.frozen;
  for (const auto& parameter : scanned_.trained) everything.push_back(parameter.tensor);
  everything.insert(everything.end(), scanned_.buffers.begin(), scanned_.buffers.end());
  train::TensorBroadcast(group_, std::move(everything)).run();
  if (options_.buffers == BufferSync::at_synchronize) {
    buffer_broadcast_ = std::make_unique<train::TensorBroadcast>(group_, scanned_.buffers);
  }
  // Alone there is nothing to overlap with: updates run in step(), and no operator is ever observed.
  if (group_.size() == 1) {
    options_.policy = "serial";
    options_.planned = false;
  }
  agree(group_, "choice of buckets", choice_of_buckets(options_));
  if (!options_.fusion && !options_.planned && group_.size() > 1)
    tuning_ =
        std::make_unique<train::LiveTuning>(group_, options_.tuning, options_.policy, options_.one_copy);
  fusion_ = options_.fusion.value_or(Fusion());
  plans_ = options_.planned || tuning_ || find_policy(options_.policy).overlap == Overlap::eager;
  recording_ = options_.record_trace || plans_;

  const std::size_t count = scanned_.trained.size();
  seen_.resize(count);
  used_.resize(count);
  arrivals_.resize(count);
  expected_.resize(count);
  learned_from_.resize(count);
  hooks_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const torch::Tensor& tensor = scanned_.trained[i].tensor;
    index_of_[tensor.unsafeGetTensorImpl()] = i;
    hooks_.emplace_back(tensor, [this, i] { gradient_arrived(i); });
  }
  observation_.enable();
}

DataParallel::Impl::~Impl() {
  observation_.disable();
  hooks_.clear();
  if (std::uncaught_exceptions() > unwinding_) {
    group_.abort("the training program ended with an error");
  } else if (last_arrived_ && !failure_) {
    // Peers that go on to their step() must not wait for this rank.
    if (std::current_exception()) {
      group_.abort(
          "its DataParallel was destroyed between a backward pass and step(), where an error was handled");
    } else {
      try {
        if (engine_) engine_->conductor().synchronize();
        group_.barrier().wait();
      } catch (const std::exception&) {
        // The group has ended, here and on the peers.
      }
    }
  }
  leave_one_copy();
}

// ---- refusals and failures
// ---------------------------------------------------------------------------------------

void DataParallel::Impl::check_together(const std::function<void()>& check) {
  std::exception_ptr mine;
  std::string reason;
  try {
    check();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    reason = error.what();
  }
  const std::vector<std::string> reasons = all_gather_text(group_, reason);
  if (mine) std::rethrow_exception(mine);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank)
    if (!reasons[rank].empty())
      throw ConfigError(fmt::format("rank {}: rank {} refused: {}", group_.rank(), rank, reasons[rank]));
}

void DataParallel::Impl::fail(const std::exception_ptr& error) noexcept {
  if (failure_) return;
  failure_ = error;
  if (engine_) engine_->conductor().keep_failure(error);
  try {
    std::rethrow_exception(error);
  } catch (const TransportError&) {  // peers have it from the group
  } catch (const TimeoutError&) {
  } catch (const MismatchError&) {  // and find this one themselves
  } catch (const std::exception& known) {
    group_.abort(known.what());
  } catch (...) {
    group_.abort("an exception of an unknown type");
  }
}

const train::Engine& DataParallel::Impl::engine() const {
  if (!engine_) throw ScheduleError("there is no schedule before the first step(): call step() once");
  return *engine_;
}

void DataParallel::Impl::throw_if_failed() {
  if (failure_) std::rethrow_exception(failure_);
  const train::Engine* engine = observed_engine_.load(std::memory_order_acquire);
  if (engine) engine->conductor().throw_if_failed();
}

// ---- what the observer sees
// ---------------------------------------------------------------------------------------

void DataParallel::Impl::wait_for(Conductor& conductor, const train::Engine::Place& place) {
  if (place.kind == train::Engine::Kind::parameters) {
    if (!conductor.parameters_whole(place.bucket)) conductor.wait_parameters(place.bucket);
  } else if (!conductor.gradients_free(place.bucket)) {
    conductor.wait_gradients(place.bucket);
  }
}

void DataParallel::Impl::touched(const at::Tensor& tensor) noexcept {
  train::Engine* engine = observed_engine_.load(std::memory_order_acquire);
  if (!engine) {
    learn(tensor);
    return;
  }
  if (!tensor.has_storage()) return;
  const auto* place = engine->find(tensor.storage().unsafeGetStorageImpl());
  if (!place) return;
  try {
    const bool timed = recording_ && programs_thread() && !clock_.in_backward() &&
                       place->kind == train::Engine::Kind::parameters;
    const auto parameter = timed ? index_of_.find(tensor.unsafeGetTensorImpl()) : index_of_.end();
    const bool next_layer =
        parameter != index_of_.end() && clock_.running() != std::optional(layer_of_[parameter->second]);
    if (next_layer) clock_.forward_ended(now_seconds());
    wait_for(engine->conductor(), *place);
    if (next_layer) clock_.forward_began(layer_of_[parameter->second], now_seconds());
  } catch (...) {
    engine->conductor().keep_failure(std::current_exception());
  }
  // Another thread might find it idle just before step() makes it busy, and disable just after.
  if (programs_thread() && !recording_ && engine->conductor().idle()) observation_.disable();
}

void DataParallel::Impl::backward_node() noexcept {
  // A node of another model's pass comes here too: then no layer of this one has run since the last step.
  if (programs_thread() && engine_ && recording_ && clock_.forward_seen() && !clock_.in_backward()) {
    clock_.backward_began(now_seconds());
  }
}

// ---- steps
// --------------------------------------------------------------------------------------------------------

std::unique_ptr<train::Engine> DataParallel::Impl::make_engine(const View& decision) {
  return std::make_unique<train::Engine>(group_, scanned_.trained, order_, layer_of_, optimizer_,
                                         train::Engine::Options{.policy = options_.policy,
                                                                .fusion = fusion_,
                                                                .record = recording_,
                                                                .one_copy = options_.one_copy,
                                                                .profile = profile_,
                                                                .decision = decision});
}

void DataParallel::Impl::require_same_freezing() const {
  for (const auto& parameter : scanned_.trained) {
    if (!parameter.tensor.requires_grad()) {
      throw ConfigError(
          fmt::format("rank {}: parameter '{}' was frozen after DataParallel was made: make a new one when "
                      "the set of trained parameters changes",
                      group_.rank(), parameter.name));
    }
  }
  for (const torch::Tensor& tensor : scanned_.frozen) {
    if (tensor.requires_grad()) {
      throw ConfigError(
          fmt::format("rank {}: a parameter of shape [{}] that was frozen when DataParallel was made "
                      "requires a gradient now: make a new one when the set of trained parameters changes",
                      group_.rank(), fmt::join(tensor.sizes(), ", ")));
    }
  }
}

void DataParallel::Impl::take_over_replaced() {
  if (ahead_) engine_->require_held_parameters();
  engine_->restore_parameters();
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    if (engine_->holds_gradient(i)) continue;
    if (missing_[layer_of_[i]] == 0 && group_.size() > 1) {
      throw ConfigError(fmt::format(
          "rank {}: the gradient of '{}' was replaced or dropped between backward() and "
          "step(), after it was sent: do that before backward() or after step(); to give up a step, "
          "call discard_step() on every rank",
          group_.rank(), scanned_.trained[i].name));
    }
    used_[i] = scanned_.trained[i].tensor.grad().defined();
    engine_->restore_gradient(i);
  }
}

void DataParallel::Impl::mark_unused() {
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!used_[i]) engine_->mark_unused(i);
}

void DataParallel::Impl::start_iteration() {
  for (std::size_t i = 0; i < expected_.size(); ++i) expected_[i] = std::max(expected_[i], arrivals_[i]);
  forget_arrivals();
}

// An update of the last step may still be running for a layer that no operator has read since.
void DataParallel::Impl::await_last_step() {
  Conductor& conductor = engine_->conductor();
  for (BucketId bucket = 0; bucket < engine_->grouping().size(); ++bucket) {
    if (!conductor.parameters_whole(bucket) && !conductor.changes_now(bucket))
      conductor.wait_parameters(bucket);
  }
}

void DataParallel::Impl::require_unchanged() const {
  if (late_) refuse_late(*late_);
  require_same_freezing();
  train::require_same_tensors(group_, optimizer_, scanned_);
  if (state_elsewhere_ && !state_elsewhere_->holds()) {
    throw ConfigError(fmt::format(
        "rank {}: state was loaded into the optimiser, or it was stepped itself, after the first step() of "
        "its DataParallel, which would not know: call step() of DataParallel alone",
        group_.rank()));
  }
}

void DataParallel::Impl::step() {
  throw_if_failed();
  program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (group_.size() > 1) {
    or_fail([this] { require_unchanged(); });  // peers that have nothing to refuse would wait
  } else {
    require_unchanged();
  }
  if (order_.empty()) learn_layers();
  or_fail([this] { commit(); });
}

void DataParallel::Impl::commit() {
  if (!engine_) {
    for (std::size_t i = 0; i < used_.size(); ++i) used_[i] = scanned_.trained[i].tensor.grad().defined();
    if (tuning_) fusion_ = tuning_->start(train::Engine::describe(scanned_.trained, order_, layer_of_));
    engine_ = make_engine();
    observed_engine_.store(engine_.get(), std::memory_order_release);
    state_elsewhere_.emplace(optimizer_);
  } else {
    await_last_step();
    take_over_replaced();
  }
  mark_unused();
  if (ahead_ && !engine_->has_options_of(optimizer_)) {
    throw ConfigError(
        fmt::format("rank {}: an option of the optimiser, such as its learning rate, was changed between "
                    "backward and step(), where policy {} updates already: change it after step(), or train "
                    "with policy dear",
                    group_.rank(), options_.policy));
  }
  if (!ahead_) engine_->capture_options(optimizer_);
  if (recording_) clock_.next_iteration(now_seconds());
  observation_.enable();
  engine_->conductor().commit();
  if (!recording_ && engine_->conductor().idle()) observation_.disable();
  start_iteration();
  if (tuning_) tune();
  // The first two steps are not like others: the one that learned, and the one after it.
  if (plans_ && statistics().iterations == options_.profile_steps + 2) plan();
}

void DataParallel::Impl::synchronize() {
  throw_if_failed();
  if (!engine_) return;
  engine_->conductor().synchronize();
  if (tuning_) tuning_->synchronized();
  // Between a backward and its step reductions are on the wire, and a broadcast would meet them in another
  // order on another rank.
  if (buffer_broadcast_ && !last_arrived_) buffer_broadcast_->run();
}

DataParallelStatistics DataParallel::Impl::statistics() const {
  DataParallelStatistics statistics = totals();
  statistics.iterations -= discarded_;
  return statistics;
}

DataParallelStatistics DataParallel::Impl::totals() const {
  if (!engine_) return {};
  return {.iterations = earlier_.iterations + engine_->conductor().iteration(),
          .exposed_seconds = earlier_.exposed_seconds + engine_->conductor().exposed_seconds(),
          .waits = earlier_.waits + engine_->conductor().wait_count(),
          .parameter_bytes = engine_->parameter_bytes(),
          .buckets = engine_->grouping().size()};
}

// ---- the interface
// ------------------------------------------------------------------------------------------------

DataParallel::DataParallel(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(model, optimizer, std::move(group), std::move(options))) {}

DataParallel::~DataParallel() = default;

void DataParallel::step() { impl_->step(); }
void DataParallel::discard_step() { impl_->discard_step(); }
void DataParallel::synchronize() { impl_->synchronize(); }
void DataParallel::regroup(Fusion fusion) { impl_->regroup(std::move(fusion)); }
const Schedule& DataParallel::schedule() const { return impl_->engine().schedule(); }
const Grouping& DataParallel::grouping() const { return impl_->engine().grouping(); }
const Workload& DataParallel::workload() const { return impl_->engine().workload(); }
DataParallelStatistics DataParallel::statistics() const { return impl_->statistics(); }
const TuningProgress* DataParallel::tuning() const { return impl_->tuning(); }
Trace DataParallel::trace() { return impl_->trace(); }
Workload DataParallel::profile() { return impl_->profile(); }

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { owner_.impl_->defer(); }
DataParallel::NoSync::~NoSync() { owner_.impl_->resume(); }

}  // namespace dear
