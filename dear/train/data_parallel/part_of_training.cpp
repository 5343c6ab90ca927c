#include "dear/train/data_parallel/part_of_training.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {
namespace {

// The DataParallels of this process that a Kfac serves; ranks may be threads.
struct Claims {
  std::mutex mutex;
  std::set<const DataParallel*> claimed;
};
Claims& claims() {
  static Claims all;
  return all;
}

}  // namespace

PartOfTraining::~PartOfTraining() {
  if (!claimed_) return;
  const std::lock_guard lock(claims().mutex);
  claims().claimed.erase(&dp_);
}

void PartOfTraining::claim() {
  const std::lock_guard lock(claims().mutex);
  claimed_ = claims().claimed.insert(&dp_).second;
  if (!claimed_)
    throw ConfigError(fmt::format(
        "rank {}: a DataParallel has one K-FAC at a time: end the one before, or use it on", group().rank()));
}

void PartOfTraining::meet() const {
  agreement::meet(group(), agreement::Call::make_kfac,
                  dp_.trainer_->record_.commits(dp_.trainer_->engine_.get()));
}

std::int64_t PartOfTraining::steps_ended() const {
  const train::Trainer& training = *dp_.trainer_;
  return training.record_.commits(training.engine_.get()) + training.steps_alone_ + steps_given_up();
}

void PartOfTraining::stepped() {
  stepped_at_ = steps_ended();
  preconditioned_.clear();
  if (!dp_.trainer_->alone_) return;
  for (const TrainedParameter& parameter : dp_.trainer_->scanned_.trained)
    if (const torch::Tensor& gradient = parameter.tensor.grad(); gradient.defined())
      preconditioned_.emplace_back(gradient.getIntrusivePtr());
}

// With several ranks gradients that were dropped end the step once others arrive.
bool PartOfTraining::holds_preconditioned() const {
  if (stepped_at_ != steps_ended()) return false;
  const auto& trained = dp_.trainer_->scanned_.trained;
  return !dp_.trainer_->alone_ || std::any_of(trained.begin(), trained.end(), [&](const auto& parameter) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    return gradient.defined() &&
           std::any_of(preconditioned_.begin(), preconditioned_.end(), [&](const WeakTensor& old) {
             return old._unsafe_get_target() == gradient.unsafeGetTensorImpl();
           });
  });
}

void PartOfTraining::require_new_gradients() const {
  if (holds_preconditioned())
    throw ConfigError(fmt::format(
        "rank {}: K-FAC's step() was called twice for one step: let the optimiser take the step in between, "
        "or call discard_step(), on every rank",
        group().rank()));
  if (!dp_.trainer_->passes.gradients_arrived() && dp_.trainer_->participation_.samples() != 0)
    throw ConfigError(fmt::format(
        "rank {}: K-FAC's step() found no gradient that arrived since the last step of the optimiser: call "
        "it after backward()",
        group().rank()));
}

const Group& PartOfTraining::group() const { return dp_.trainer_->group_; }

void PartOfTraining::require_usable() const {
  dp_.trainer_->gradient_changes.require_changeable_gradients("K-FAC's step");
  if (dp_.trainer_->participation_.joined())
    throw ConfigError(fmt::format(
        "rank {}: K-FAC cannot train in a Join, where a rank without data could not take part in its "
        "collectives: give ranks equally many batches",
        group().rank()));
}

void PartOfTraining::settle_for(const char* call) const {
  dp_.trainer_->throw_if_failed();
  dp_.trainer_->state_.require_between_steps(call);
  if (dp_.trainer_->passes.gradients_arrived())
    throw ConfigError(
        fmt::format("rank {}: {} is for between step() and the next backward, but a gradient "
                    "has arrived: call it after step()",
                    group().rank(), call));
  if (dp_.trainer_->engine_) dp_.trainer_->waits.wait_for_all();
}

void PartOfTraining::reduce_gradients(double learning_rates, double loss_scale) const {
  dp_.trainer_->gradient_changes.reduce_gradients(GradientChanges::KfacNumbers{learning_rates, loss_scale});
}
std::int64_t PartOfTraining::steps_given_up() const { return dp_.trainer_->monitoring_.given_up(); }
void PartOfTraining::fail(const std::exception_ptr& error) const { dp_.trainer_->fail(error); }

std::optional<double> PartOfTraining::learning_rate_of(const torch::Tensor& weight) const {
  const std::vector<Optimizer::Options> options = dp_.trainer_->optimizer_->group_options();
  std::size_t group = 0;
  for (const TrainedParameter& parameter : dp_.trainer_->scanned_.trained)
    if (parameter.tensor.is_same(weight)) group = parameter.parameter_group;
  if (group >= options.size()) return std::nullopt;
  const auto rate = options[group].find("lr");
  if (rate == options[group].end()) return std::nullopt;
  return rate->second;
}

void PartOfTraining::translate(const std::exception_ptr& error) const {
  if (dp_.trainer_->options_.translate_error) dp_.trainer_->options_.translate_error(error);
}

void PartOfTraining::require_writable_parameters(const char* whose) const {
  const DataParallelOptions& options = dp_.trainer_->options_;
  if (options.one_copy || options.fp32_masters)
    throw ConfigError(
        fmt::format("rank {}: {} writes parameters after a step, which one_copy and fp32_masters do not "
                    "allow: leave {} out",
                    group().rank(), whose, options.one_copy ? "one_copy" : "fp32_masters"));
}

void PartOfTraining::add_counts(std::function<Counts()> counts) const {
  dp_.trainer_->counts_beside_.push_back(std::move(counts));
}

bool PartOfTraining::records_trace() const { return dp_.trainer_->options_.record_trace; }
void PartOfTraining::add_spans(const void* owner, std::function<std::vector<Span>()> spans) const {
  dp_.trainer_->record_.add_part(owner, std::move(spans));
}
void PartOfTraining::remove_spans(const void* owner) const { dp_.trainer_->record_.remove_part(owner); }

}  // namespace dear::train
