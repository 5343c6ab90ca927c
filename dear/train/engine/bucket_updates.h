#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/engine/engine_options.h"
#include "dear/train/engine/parameters_in_buckets.h"
#include "dear/train/optim/reduced_gradients.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

// The updates of the buckets' parameters, and the optimiser's state, of which a rank has what it updates. See
// [Note: updates of the program] for those that the program makes. Updates come one at a time; all else while
// none is at work.
class BucketUpdates {
 public:
  // What an update changes of a bucket.
  struct Part {
    BucketId bucket;
    Range chunk;
    std::size_t index;  // in the bucket
    Range elements;     // of the flat buffer
    bool scattered;     // each rank updates a shard of it
  };
  // All but `options` outlive this. `streams`: of the device on which buckets lie; null elsewhere.
  BucketUpdates(Group group, ParametersInBuckets& model, const Schedule& schedule, const Optimizer& optimizer,
                const EngineOptions& options, streams::BucketStreams* streams);
  // Plans the updates of the next bucket, of so many bytes without padding. Returns what this rank updates,
  // by part.
  std::vector<Range> plan(BucketId bucket, std::int64_t bytes, const buckets::BucketLayout& layout);
  // This rank's shard of elements of a flat buffer that one collective carries.
  [[nodiscard]] Range own_shard(const Range& elements, DType dtype) const;
  // When its parameters lie in it: writes those of a shared copy, and cuts what this rank updates.
  void add(BucketStorage& bucket, BucketId id);
  // After the last bucket, all ranks together: makes the flat optimiser.
  void complete(const Optimizer& optimizer);

  [[nodiscard]] bool by_program() const { return by_program_; }
  void capture_options();
  [[nodiscard]] bool has_current_options() const { return optimizer_->has_current_options(); }
  [[nodiscard]] std::int64_t count() const { return optimizer_->updates(); }  // between two iterations
  // Updates a bucket, and zeroes its gradients. Aborts the group when it throws.
  void update(const Update& work, std::int64_t iteration);
  // How quick they were since the last call of measure_from_now(), in bytes of parameters that this rank
  // updates; 0 where there was none.
  // While updates are at work, too.
  [[nodiscard]] double bytes_per_second() const {
    const double seconds = seconds_;
    return seconds > 0 ? bytes_ / seconds : 0;
  }
  void measure_from_now() {
    seconds_ = 0;
    bytes_ = 0;
  }
  // While true, updates change nothing: the gradients that were reduced are dropped.
  void drop(bool drop) { drop_ = drop; }
  [[nodiscard]] bool drops() const { return drop_; }
  // On a device: these have no gradient on any rank.
  void leave_out(optim::TensorSet parameters);
  [[nodiscard]] const optim::TensorSet& left_out() const { return left_out_; }
  // See [Note: steps that a device gives up].
  [[nodiscard]] bool skips_on_device() const { return optimizer_->skips_on_device(); }
  void skip_where(torch::Tensor found) { optimizer_->skip_where(std::move(found)); }
  // After an update of the program: ConfigError for a parameter that is not finite, where that is asked for.
  void require_finite_parameters(std::int64_t iteration) const;

  // The buckets' parts side by side, buckets ascending.
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] Range own_range(const Part& part) const;  // that this rank updates
  [[nodiscard]] optim::ShardedOptimizer& optimizer() const { return *optimizer_; }
  // The type of the vectors that the optimiser keeps of a parameter.
  [[nodiscard]] at::ScalarType state_type(at::ScalarType parameter) const {
    return widening_.widens(parameter) ? at::kFloat : parameter;
  }
  // By TensorId, the same on every rank; all ranks together.
  [[nodiscard]] optim::ShardedOptimizer::Outlines outlines();
  // The optimiser's vector of this name over the whole bucket; all ranks together.
  [[nodiscard]] torch::Tensor gather_vector(BucketId bucket, const std::string& name);
  using States = std::vector<std::optional<OptimizerState>>;  // by parameter
  // What the optimiser remembers of each parameter, whole on every rank; vectors have the parameter's shape.
  // All ranks together. Takes room for the state of all parameters.
  [[nodiscard]] States state();
  // ConfigError for a vector that has another shape or type than its parameter.
  void require_state_of_shape(const States& states) const;
  // Replaces it; `states` are the same on every rank.
  void take_over(const States& states);

 private:
  void update_part(const Part& part, std::int64_t iteration);
  void require_none(const std::string& nonfinite, std::int64_t iteration) const;
  void write_state(const States& states);

  const Group group_;
  const std::shared_ptr<const ShardShares> shares_;
  ParametersInBuckets& model_;
  const Schedule& schedule_;
  const bool by_program_;
  const optim::Widening widening_;
  metrics::BucketHooks* const hooks_;
  const bool check_parameters_;
  const std::int64_t earlier_iterations_;
  streams::BucketStreams* const streams_;
  std::vector<FlatVectors> vectors_;  // by parameter group; of no use after complete()
  std::vector<std::vector<optim::ShardedOptimizer::FlatRun>> runs_;
  std::vector<Part> parts_;
  std::unique_ptr<optim::ShardedOptimizer> optimizer_;
  optim::TensorSet left_out_;
  std::atomic<bool> drop_ = false;
  std::atomic<double> seconds_ = 0, bytes_ = 0;
};

}  // namespace dear::train
