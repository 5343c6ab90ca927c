#include "dear/preconditioner/training.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/train/data_parallel_impl.h"

namespace dear::preconditioner {

const Group& Training::group() const { return dp_.impl_->group_; }

void Training::require_usable() const {
  dp_.impl_->require_changeable_gradients("Kfac::step");
  if (dp_.impl_->attendance_.joined())
    throw ConfigError(fmt::format(
        "rank {}: K-FAC cannot train in a Join, where a rank without data could not take part in its "
        "collectives: give ranks equally many batches",
        group().rank()));
}

void Training::settle_for(const char* call) const {
  dp_.impl_->throw_if_failed();
  dp_.impl_->state_.require_between_steps(call);
  if (dp_.impl_->gradients_arrived())
    throw ConfigError(
        fmt::format("rank {}: {} is for between step() and the next backward, but a gradient "
                    "has arrived: call it after step()",
                    group().rank(), call));
  if (dp_.impl_->engine_) dp_.impl_->wait_for_all();
}

void Training::reduce_gradients() const { dp_.impl_->reduce_gradients(); }
std::int64_t Training::steps_given_up() const { return dp_.impl_->watching_.given_up(); }
void Training::fail(const std::exception_ptr& error) const { dp_.impl_->fail(error); }

std::optional<double> Training::learning_rate_of(const torch::Tensor& weight) const {
  const std::vector<Optimizer::Options> options = dp_.impl_->optimizer_->group_options();
  std::size_t group = 0;
  for (const train::TrainedParameter& parameter : dp_.impl_->scanned_.trained)
    if (parameter.tensor.is_same(weight)) group = parameter.parameter_group;
  if (group >= options.size()) return std::nullopt;
  const auto rate = options[group].find("lr");
  if (rate == options[group].end()) return std::nullopt;
  return rate->second;
}

void Training::translate(const std::exception_ptr& error) const {
  if (dp_.impl_->options_.translate_error) dp_.impl_->options_.translate_error(error);
}

bool Training::records_trace() const { return dp_.impl_->options_.record_trace; }
void Training::add_spans(const void* owner, std::function<std::vector<Span>()> spans) const {
  dp_.impl_->record_.add_part(owner, std::move(spans));
}
void Training::remove_spans(const void* owner) const { dp_.impl_->record_.remove_part(owner); }

}  // namespace dear::preconditioner
