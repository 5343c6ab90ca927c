#pragma once

#include <functional>
#include <optional>

#include <torch/types.h>

#include "dear/comm/agreement/sum_over_ranks.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/optim/reduced_gradients.h"
#include "dear/train/streams/gradients_on_stream.h"

namespace dear::train {

class Trainer;

// What a program does to the means of gradients between backward and step(): clipping, the scale of the loss,
// a look at whole means. The methods of DataParallel of the same names; all ranks together.
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
  void require_clippable(double max_norm, const NormOptions& options) const;
  void require_finite_norm(double norm) const;
  void change_on_streams(agreement::CallMade call,
                         const std::function<void(streams::GradientsOnStream&)>& change);
  double sum_over_ranks(const agreement::CallMade& call, double mine,
                        agreement::SumOverRanks::As as = agreement::SumOverRanks::As::sum);
  void make_whole();  // on every rank, gradients that are reduced

  Trainer& own_;
  agreement::SumOverRanks sums_;
  optim::ReducedGradients gradients_alone_;
};

}  // namespace dear::train
