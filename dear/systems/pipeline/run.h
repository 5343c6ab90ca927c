#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "dear/base/trace/trace.h"
#include "dear/methods/pipeline/orders.h"
#include "dear/systems/pipeline/backward.h"
#include "dear/systems/pipeline/stages.h"
#include "dear/systems/pipeline/wire.h"

namespace dear::systems::pipeline {

// A rank runs its job in every step.
struct Job {
  PipelineModel model;
  Sampled sampled;
  Stages stages;
  int rank = 0;
  int replicas = 1;  // ranks in a row that have the same stages
  int micro_batches = 1;
  std::vector<methods::pipeline::Task> order;  // of this rank
  std::vector<int> held;                       // by stage, the most micro-batches at once
};

// One step: the tasks of this rank in the order of its schedule. A stage makes room for as many messages of
// the one in front as that can send before a gradient comes back.
class Run {
 public:
  using LossOf = std::function<torch::Tensor(const torch::Tensor& output, int micro_batch)>;

  // `batches` by tensor of the batch and micro-batch, `loss_of` for the rank of the last stage; the losses
  // are added up. `stage_done` is told of each stage of this rank whose gradients are whole. `spans`, where
  // it is not null, gets what this rank computes and waits for.
  Run(const Job& job, Wire& wire, const std::vector<Tensors>& batches, LossOf loss_of,
      std::function<void(int stage)> stage_done, std::vector<Span>* spans);

  // Errors of Wire. MismatchError for an output of another shape than the sample's. Error, naming the
  // operator and micro-batch, where one throws what is no error of DeAR.
  void run();
  [[nodiscard]] double loss() const { return loss_; }

 private:
  struct Kept {
    std::map<Value, torch::Tensor> arrived, made;  // of what crosses cuts
    torch::Tensor loss;
    std::optional<Backward> backward{};  // from the gradients of inputs to those of weights
  };

  [[nodiscard]] const Stage& stage(int number) const {
    return job_.stages.stages[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const Cut& cut(int number) const {
    return job_.stages.cuts[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] bool is_first(int stage) const { return stage == 0; }
  [[nodiscard]] bool is_last(int stage) const {
    return stage + 1 == static_cast<int>(job_.stages.stages.size());
  }
  [[nodiscard]] int window(int stage) const { return job_.held[static_cast<std::size_t>(stage - 1)]; }

  void forward(int stage, int micro_batch);
  void compute(const methods::pipeline::Task& task);
  void backward(int stage, int micro_batch, bool weights_later);
  void compute(int stage, int micro_batch, Kept& kept);
  Tensors taken(int cut, bool gradient, int micro_batch);
  void record(const char* lane, std::string name, Activity activity, double begin);

  const Job& job_;
  Wire& wire_;
  const std::vector<Tensors>& batches_;
  const LossOf loss_of_;
  const std::function<void(int stage)> stage_done_;
  std::vector<Span>* const spans_;
  std::string doing_;                         // for errors
  std::map<std::pair<int, int>, Kept> kept_;  // by stage and micro-batch
  double loss_ = 0;
};

}  // namespace dear::systems::pipeline
