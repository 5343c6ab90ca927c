#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"
#include "dear/platform/cluster/pair_cluster.h"
#include "dear/systems/pipeline/pipeline_model.h"
#include "dear/train/checkpoint/checkpoint.h"

namespace torch::optim {
class Optimizer;
}

namespace dear {

namespace systems::pipeline {
struct Made;
}

// All ranks give the same options.
struct PipelineOptions {
  int micro_batches = 8;  // into which a batch is cut
  int stages = 0;         // a multiple of the ranks of a pipeline; 0: as many
  int replicas = 1;  // pipelines beside each other, with batches of their own: so many ranks in a row have
                     // the same stages, and the means of their gradients
  std::string schedule =
      "";  // "1f1b", "gpipe", "zb-h1", "interleaved" (several stages a rank); "": 1f1b or interleaved
  std::string method = "op-fence";  // or "plain-dp", "equal-number", "equal-work"
  // "none", "top-k" or "ada-top-k": of one in `ratio` elements of floating-point tensors that cross slow
  // links the largest travel, and likewise of their gradients, which pass the selection whole.
  std::string compression = "none";
  double ratio = 100;
  // Devices and links, for the plan: device i is rank i, or the replicas from rank i * replicas on. Without
  // it all are alike.
  std::optional<PairCluster> cluster{};
  // A plan (docs/formats.md) in place of the above but the cluster, which rank 0 reads; "" for none.
  std::string plan_file = "";
  // Measures operators on the sample, on rank 0 while all ranks compute it; else counts their work by the
  // sizes of their weights.
  bool measure = true;
  bool record_trace = false;
};

struct PipelineStatistics {
  std::int64_t steps = 0;
  std::int64_t bytes_sent = 0;  // by this rank to other stages
  double seconds = 0;  // of the last step, from when all ranks had agreed to begin it to its last gradient
  double waited_seconds = 0;  // of these, for messages; 0 where no trace is recorded
};

// Trains one model whose stages lie on the ranks of a group, which may be far apart (FusionLLM, Tang et al.
// 2024, arXiv 2410.12707; docs/pipeline_train.md). Each rank computes operators that follow each other, and
// has their parameters alone; activations and gradients of micro-batches travel while stages compute.
//
//   dear::Pipeline pipe(model, {x}, group, {.micro_batches = 8});
//   torch::optim::AdamW optimizer(pipe.parameters(), 1e-3);
//   for (...) {
//     optimizer.zero_grad();
//     const double loss = pipe.step({x}, y, cross_entropy);
//     optimizer.step();
//   }
//
// Gradients are those of one process that accumulates loss / micro_batches over the parts of the batch (with
// replicas the mean over their batches), and are added to those that are there. Those of parameters that
// several stages use are added up over their ranks. On the CPU. One thread calls, and every rank makes the
// same calls in the same order.
class Pipeline {
 public:
  using Tensors = PipelineModel::Tensors;
  // A loss takes the model's output and the part of the targets that belongs to it, and is a mean over
  // samples.
  using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

  // `sample` is a batch as step() gets it. The model is whole on every rank, and has rank 0's values then;
  // what lies on other ranks has no element afterwards. On a group that has messages: of shm, gloo,
  // mpi-messages or links of pairs. ConfigError on every rank for what cannot be sampled, planned or cut;
  // MismatchError where ranks' models differ.
  Pipeline(const PipelineModel& model, const Tensors& sample, const Group& group,
           const PipelineOptions& options = {});
  Pipeline(Pipeline&&) noexcept;
  ~Pipeline();

  // Forward and backward of a batch, each replica's own; the mean of all losses, on every rank. The batch is
  // read on ranks whose stages read it, targets on that of the last stage: others may leave them out.
  //
  // ConfigError on every rank, before anything is sent, where one rank's batch is not like the sample or its
  // targets are not one for each sample. Later failures end the pipeline: TransportError and TimeoutError say
  // which stage waited for which operator and micro-batch, and whose fault it was.
  double step(const Tensors& batch, const torch::Tensor& targets, const Loss& loss);

  [[nodiscard]] Tensors parameters() const;  // of this rank's stages

  // Scales the gradients so that the norm of those of all ranks together is at most `max_norm`, which is
  // above 0; returns what it was, the same on every rank.
  double clip_grad_norm(double max_norm);

  // Saves all that training needs to go on into one file, as save_checkpoint() (checkpoint.h) has it: the
  // whole model, the optimiser's state and options, and the position, but no generators of random numbers.
  // Python reads it with torch.load(path, weights_only=True). `optimizer` is one of parameters() in one
  // group, of a class of libtorch's or DeAR's. Every rank calls it between steps; rank 0 writes. ConfigError
  // on every rank where it cannot be written; training can go on.
  void save(torch::optim::Optimizer& optimizer, const std::string& path, const Position& position);
  // Puts back what save() or one process saved, under any plan and on any number of ranks. ConfigError on
  // every rank, and nothing has changed, for a file that is damaged, or of another model or optimiser.
  Position load(torch::optim::Optimizer& optimizer, const std::string& path);

  // Parameters and buffers (of the first replica) of the whole model, on every rank, under the names of
  // `root`; loaded under any plan. ConfigError for a state of another model.
  [[nodiscard]] std::map<std::string, torch::Tensor> state();
  void load_state(const std::map<std::string, torch::Tensor>& state);

  [[nodiscard]] const std::string& plan() const;  // as a file has it
  [[nodiscard]] int micro_batches() const;
  [[nodiscard]] double predicted_seconds() const;         // of a step by the plan, played in virtual time
  [[nodiscard]] std::vector<std::string> stages() const;  // "stage 0 ('a' to 'c') on rank 1"
  [[nodiscard]] const PipelineStatistics& statistics() const;
  [[nodiscard]] Trace trace() const;  // of this rank, where it is recorded

 private:
  std::unique_ptr<systems::pipeline::Made> made_;
};

}  // namespace dear
