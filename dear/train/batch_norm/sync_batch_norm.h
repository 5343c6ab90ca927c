#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "dear/comm/group/group.h"

namespace dear {

namespace batch_norm {
class Statistics;
}

// The ranks over which layers of batch normalisation compute their statistics: a group of its own, so that
// their collectives run beside those of a DataParallel. Copies share it. Layers that share one run in the
// same order on every rank, forward and backward.
class NormGroup {
 public:
  using TranslateError = std::function<void(const std::exception_ptr& error)>;
  // Duplicates the group: every rank makes it together, between a synchronize() and the next backward where a
  // DataParallel has the group. `translate_error` is given what goes wrong in a backward pass before autograd
  // is, and may throw it as an exception of another language.
  explicit NormGroup(const Group& group, TranslateError translate_error = {});
  void translate_error(const std::exception_ptr& error) const;
  [[nodiscard]] batch_norm::Statistics& statistics() const { return *statistics_; }
  [[nodiscard]] int size() const;

 private:
  std::shared_ptr<batch_norm::Statistics> statistics_;
  TranslateError translate_;
};

// SyncBatchNormOptions are as torch::nn::BatchNormOptions.
struct SyncBatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: running statistics are the mean over all batches
  bool affine = true;
  bool track_running_stats = true;
};

// Tensors and settings of one normalisation; those that are undefined are left out.
struct SyncBatchNormTensors {
  torch::Tensor weight, bias, running_mean, running_var;
};

// In training, normalises each channel (dimension 1) over the samples of all ranks, of which each may have
// any number, also none: the same as batch normalisation of the union of the batches, within rounding, and
// the same bits in every run. Running statistics change in place, by `momentum`, and are the same on all
// ranks. Input of at least 2 dimensions in fp16, bf16, fp32 or fp64, in any memory order; computed in at
// least fp32. Every rank calls it with as many channels (MismatchError), and runs its backward pass. Weights
// get the gradient of this rank's samples, for DataParallel to average.
//
// ConfigError for other input, where all ranks together have one value for each channel, and for a second
// derivative (backward with create_graph). Errors of the group are thrown as everywhere.
torch::Tensor sync_batch_norm(const torch::Tensor& input, const SyncBatchNormTensors& tensors,
                              double momentum, double eps, const NormGroup& group);

// torch::nn::BatchNorm over the samples of all ranks while training, in place of BatchNorm1d, 2d and 3d:
//
//   const dear::NormGroup norms(group);  // one for the model
//   dear::SyncBatchNorm(64, norms)
//
// In evaluation, and with one rank, it is plain batch normalisation. The names of its tensors are those of
// torch::nn::BatchNorm, so that checkpoints fit both. Not in a Join, whose ranks without data run no forward.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  SyncBatchNormImpl(std::int64_t features, NormGroup group, const SyncBatchNormOptions& options = {});
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  torch::Tensor forward(const torch::Tensor& input);

  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  std::int64_t features_;
  NormGroup group_;
  SyncBatchNormOptions options_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace dear
