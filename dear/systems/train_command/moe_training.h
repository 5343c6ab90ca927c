#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"
#include "dear/systems/train_command/gpt.h"
#include "dear/systems/train_command/interleaving.h"
#include "dear/systems/train_command/moe_gpt.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/systems/train_command/train_settings.h"
#include "dear/train/model/model.h"

namespace dear::train_command {

// What a job with mixtures of experts has beside its DataParallel, which trains dense(): the model, and the
// updates of the experts on this rank, by an optimiser of the same class. Every rank makes the same calls.
class MoeTraining {
 public:
  // ConfigError for experts that the ranks do not share out alike.
  MoeTraining(const TrainSettings& settings, const GptOptions& gpt, const Group& group, bool record);

  [[nodiscard]] MoeGpt& model() { return model_; }
  [[nodiscard]] Model dense() const { return dense_model_of(*model_); }
  [[nodiscard]] std::vector<torch::Tensor> dense_parameters() const { return dense_parameters_of(*model_); }
  // The loss for a backward pass: `loss` and the weighted balance loss of the last forward pass.
  [[nodiscard]] torch::Tensor with_balance(const torch::Tensor& loss) const;
  void step();  // after that of the DataParallel
  [[nodiscard]] double waited_seconds() const { return ranks_->statistics().waited_seconds; }
  // Of the whole model with the experts of all ranks.
  [[nodiscard]] std::string digest() const { return parameter_digest(whole_model_of(*model_)); }
  [[nodiscard]] const std::vector<Span>& spans() const { return ranks_->spans(); }
  // Times are medians over the steps that count.
  [[nodiscard]] MoeReport report(const std::vector<Range>& counted) const;

 private:
  const MoeJob job_;
  std::shared_ptr<ExpertGroup> ranks_;
  MoeGpt model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;  // of experts
  AllToAllStatistics before_{};                         // of the steps so far
  std::vector<AllToAllStatistics> by_step_;
};

MoeGptOptions moe_gpt_options(const MoeJob& job, const GptOptions& gpt);

}  // namespace dear::train_command
