#include "dear/train/engine/bucket_updates.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/buckets/whole_tensors.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/optim/norm_exchange.h"

namespace dear::train {

BucketUpdates::BucketUpdates(Group group, ParametersInBuckets& model, const Schedule& schedule,
                             const Optimizer& optimizer, const EngineOptions& options,
                             streams::BucketStreams* streams)
    : group_(std::move(group)),
      shares_(options.shares),
      model_(model),
      schedule_(schedule),
      by_program_(options.rules.by_program()),
      widening_(options.rules.widening),
      hooks_(options.hooks),
      check_parameters_(options.check_parameters),
      earlier_iterations_(options.iterations),
      streams_(streams) {
  for (std::size_t i = 0; !by_program_ && i < optimizer.parameter_groups().size(); ++i)
    vectors_.push_back(optimizer.vectors(i));
}

std::vector<Range> BucketUpdates::plan(BucketId bucket, std::int64_t bytes,
                                       const buckets::BucketLayout& layout) {
  std::vector<Range> own;
  for (const StepId step : schedule_.updates_of(bucket)) {
    const auto& work = std::get<Update>(schedule_.steps()[step].work);
    const Part& part = parts_.emplace_back(
        Part{.bucket = bucket,
             .chunk = work.chunk,
             .index = own.size(),
             .elements = buckets::part_of(work.chunk, bytes, layout.elements, layout.dtype, group_.size()),
             .scattered = work.scope == UpdateScope::shard});
    own.push_back(part.scattered ? own_shard(part.elements, layout.dtype) : part.elements);
  }
  return own;
}

Range BucketUpdates::own_shard(const Range& elements, DType dtype) const {
  const Range shard = shard_of(elements.size(), dtype, group_.size(), group_.rank(), shares_.get());
  return {elements.begin + shard.begin, elements.begin + shard.end};
}

Range BucketUpdates::own_range(const Part& part) const {
  return model_.buckets()[part.bucket].own(part.index);
}

void BucketUpdates::add(BucketStorage& bucket, BucketId id) {
  for (std::size_t part = 0; part < schedule_.updates_of(id).size(); ++part) {
    bucket.write_incoming(part);
    runs_.push_back(by_program_ ? decltype(runs_)::value_type() : bucket.runs(part, vectors_));
  }
}

void BucketUpdates::complete(const Optimizer& optimizer) {
  optim::ShardedOptimizer::SumOverRanks sum_over_ranks;
  const std::size_t norms = by_program_ ? 0 : optimizer.norms();
  if (norms > 0) {
    std::vector<std::vector<TensorId>> cut;
    for (const Part& part : parts_)
      cut.push_back(part.scattered ? buckets::tensors_cut(model_.buckets()[part.bucket].layout(),
                                                          part.elements, group_.size(), shares_.get())
                                   : std::vector<TensorId>());
    const auto exchange = std::make_shared<optim::NormExchange>(group_, std::move(cut), norms);
    sum_over_ranks = [exchange](std::size_t part, auto& sums) { exchange->sum(part, sums); };
  }
  optimizer_ = std::make_unique<optim::ShardedOptimizer>(
      by_program_ ? optim::make_idle() : optimizer.make_flat(), optimizer.parameter_groups().size(),
      std::move(runs_), widening_, norms, std::move(sum_over_ranks));
}

// Updates read options on the communication stream, until the next capture lets go of them.
void BucketUpdates::capture_options() {
  optimizer_->capture_options();
  if (streams_ == nullptr) return;
  for (const torch::Tensor& option : optimizer_->option_tensors()) streams_->keep_for_communication(option);
}

void BucketUpdates::update(const Update& work, std::int64_t iteration) {
  const autograd::Unobserved unobserved;
  try {
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& one) {
      return one.bucket == work.bucket && one.chunk == work.chunk;
    });
    const auto zero = [&] {
      if (!by_program_ || drop_) model_.buckets()[part->bucket].zero_gradients(part->elements);
    };
    if (streams_ == nullptr) {
      const double begin = now_seconds();
      update_part(*part, iteration);
      zero();
      seconds_ += now_seconds() - begin;
      const BucketStorage& bucket = model_.buckets()[part->bucket];
      bytes_ += static_cast<double>(own_range(*part).size()) *
                static_cast<double>(bucket.parameters().element_size());
      return;
    }
    const auto guard = streams_->on_communication();
    update_part(*part, iteration);
    streams_->updated(part->bucket, zero);
  } catch (const std::exception& error) {
    group_.abort(
        fmt::format("rank {} failed to update bucket {}: {}", group_.rank(), work.bucket, error.what()));
    throw;
  }
}

void BucketUpdates::update_part(const Part& part, std::int64_t iteration) {
  model_.buckets()[part.bucket].write_incoming(part.index);
  if (!drop_ && hooks_ != nullptr && hooks_->any(HookAt::after_reduction)) {
    BucketGradients means = model_.gradients_of(part.bucket, own_range(part));
    means.iteration = earlier_iterations_ + iteration;
    hooks_->run(HookAt::after_reduction, means);
  }
  if (!drop_) optimizer_->update(static_cast<std::size_t>(&part - parts_.data()));
  if (check_parameters_ && !by_program_)
    require_none(model_.nonfinite_parameters(part.bucket, own_range(part)), iteration);
}

void BucketUpdates::leave_out(optim::TensorSet parameters) {
  left_out_ = std::move(parameters);
  std::vector<bool> tensors(model_.workload().tensors.size());
  for (std::size_t i = 0; i < model_.parameters().size(); ++i)
    tensors[model_.tensor_of(i)] = left_out_.contains(model_.parameters()[i].tensor.unsafeGetTensorImpl());
  optimizer_->leave_out(std::move(tensors));
}

void BucketUpdates::require_finite_parameters(std::int64_t iteration) const {
  for (std::size_t i = 0; check_parameters_ && i < model_.parameters().size(); ++i)
    require_none(model_.nonfinite_parameter(i), iteration);
}

void BucketUpdates::require_none(const std::string& nonfinite, std::int64_t iteration) const {
  if (nonfinite.empty()) return;
  recorder::note_not_finite(earlier_iterations_ + iteration, nonfinite);
  throw Error(fmt::format(
      "rank {}: {}, after the update of iteration {}: look at the learning rate, or check gradients, too",
      group_.rank(), nonfinite, earlier_iterations_ + iteration));
}

}  // namespace dear::train
