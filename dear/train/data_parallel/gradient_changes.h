#pragma once

#include <memory>
#include <optional>

#include <torch/types.h>

#include "dear/comm/agreement/sum_over_ranks.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/optim/reduced_gradients.h"

namespace dear::train {

class Trainer;

// The means of a step as far as they lie on this rank, on the host or on a device with streams: what ranks
// ask of them and do to them, all in the same call. A number over all ranks is a scalar that lies where the
// means do.
class FinalGradients {
 public:
  FinalGradients() = default;
  virtual ~FinalGradients() = default;
  FinalGradients(const FinalGradients&) = delete;
  FinalGradients& operator=(const FinalGradients&) = delete;

  // Scales them by max_norm / (norm + 1e-6) where that is below 1. Returns the norm, in fp64.
  virtual torch::Tensor clip(const agreement::CallMade& call, double max_norm,
                             const NormOptions& options) = 0;
  virtual void clamp(const agreement::CallMade& call, double limit) = 0;
  virtual void scale(const agreement::CallMade& call, double factor) = 0;
  // Divides by the scale, and returns whether an element was not finite: 1 or 0, in fp32.
  virtual torch::Tensor unscale(const agreement::CallMade& call, double loss_scale) = 0;
  virtual void leave(const agreement::CallMade& call) = 0;  // as they are
};

// GradientChanges carries out what a program asks of mean gradients between backward and step(): clipping,
// the scale of the loss, a look at whole means. The methods of DataParallel of the same names; all ranks
// together.
class GradientChanges {
 public:
  explicit GradientChanges(Trainer& own);

  double clip_gradients_by_norm(double max_norm, const NormOptions& options);
  torch::Tensor clip_gradients(double max_norm, const NormOptions& options);
  void clip_gradients_by_value(double limit);
  bool unscale_gradients(double loss_scale);
  torch::Tensor unscale_gradients_by(const torch::Tensor& inverse_scale);
  void scale_gradients(double loss_scale);
  struct KfacNumbers {  // which ranks compare
    double learning_rates, loss_scale;
  };
  void reduce_gradients(const std::optional<KfacNumbers>& kfac = {});
  double mean_over_ranks(double mine);
  // Gives up the step, on all ranks, where a check found some on any that are not finite.
  [[nodiscard]] bool give_up_nonfinite();

  // ConfigError where gradients cannot be changed before step().
  void require_changeable_gradients(const char* call) const;
  // The means that lie on this rank: closes the gradients of this iteration ([Note: closed]).
  optim::ReducedGradients& final_gradients();
  [[nodiscard]] std::int64_t bytes() const { return sums_.bytes(); }  // of memory

 private:
  torch::Tensor clip(double max_norm, const NormOptions& options);
  void require_clippable(double max_norm, const NormOptions& options) const;
  void require_finite_norm(double norm) const;
  class OnHost;
  class OnDevice;
  // Closes the gradients, after ranks without data have been told of the call.
  [[nodiscard]] std::unique_ptr<FinalGradients> close(agreement::CallMade& call);
  double sum_over_ranks(const agreement::CallMade& call, double mine,
                        agreement::SumOverRanks::As as = agreement::SumOverRanks::As::sum);
  void make_whole();  // on every rank, gradients that are reduced

  Trainer& own_;
  agreement::SumOverRanks sums_;
  optim::ReducedGradients gradients_alone_;
};

}  // namespace dear::train
