#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "dear/collective/group.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/schedule.h"
#include "dear/trace/trace.h"
#include "dear/workload/workload.h"

namespace dear {

// When a model's buffers (BatchNorm's running statistics) become those of rank 0. They always do at
// construction.
enum class BufferSync : std::uint8_t {
  at_construction,  // each rank keeps its own from then on
  at_synchronize,   // and at every synchronize() between a step() and the next backward
};

struct DataParallelOptions {
  std::string policy = "dear";  // one of training_policies(), see schedule/policy/policy.h
  Fusion fusion = {};           // how tensors are grouped into buckets
  BufferSync buffers = BufferSync::at_synchronize;
  bool record_trace = false;  // spans of layers, waits, updates and collectives; costs about 2 us an operator
};

// Since construction, on this rank.
struct DataParallelStatistics {
  std::int64_t iterations = 0;  // steps taken
  double exposed_seconds =
      0;                   // exposed communication: the program waited, in an operator or in a call of ours
  std::int64_t waits = 0;  // how often it did
  std::int64_t parameter_bytes = 0;  // of all buckets; gradients take the same again
  std::size_t buckets = 0;
};

// Data-parallel training of a libtorch module: what synchronous SGD over all ranks gives, communication
// hidden under the backward pass and the next forward (arXiv 2302.12445).
//
//   dear::Group group = dear::init();
//   torch::optim::AdamW adamw(model->parameters(), 1e-3);
//   dear::DataParallel dp(*model, adamw, group);
//   for (auto& batch : *loader) {
//     auto loss = criterion(model->forward(batch.data), batch.target);
//     loss.backward();
//     dp.step();          // instead of adamw.step(); gradients are zeroed for the next pass
//   }
//   dp.synchronize();
//
// Gradients are averaged over ranks. `model` and `optimizer` must outlive this object; options of the
// optimiser's groups may be changed at any time, those at step() count. step(), synchronize(), backward() and
// forward() are called from one thread. Every rank makes the same calls of ours in the same order.
class DataParallel {
 public:
  // Copies rank 0's parameters and buffers to all ranks. MismatchError on every rank, naming the first tensor
  // that differs, when the ranks' models or optimisers are not alike. ConfigError for an optimiser whose
  // update is not elementwise (supported: SGD, Adam, AdamW, RMSprop, Adagrad), for one that has trained
  // already, for a trained parameter that it does not hold, and for parameters that share memory without
  // being one tensor.
  DataParallel(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
               DataParallelOptions options = {});
  ~DataParallel();  // waits for what is on the wire, without throwing; call synchronize() before it
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Ends the iteration: the gradients of all backward passes since the last step() are reduced and applied. A
  // parameter without a gradient counts as zero. The first call also fixes the order of layers (as they were
  // used), groups tensors into buckets and moves parameters and gradients into them. Throws what went wrong
  // in an operator since the last call; no step is applied after an error.
  void step();

  // Parameters are whole and gradients zero when it returns. Not needed before operators read parameters
  // (they wait by themselves), but before raw data pointers do.
  void synchronize();

  // While the guard lives, gradients accumulate here and nothing is sent: for all but the last backward of an
  // accumulated step. Without it DataParallel learns from the first step how many passes make one.
  class NoSync {
   public:
    explicit NoSync(DataParallel& owner);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& owner_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Of the first step() on; ScheduleError before it.
  [[nodiscard]] const Schedule& schedule() const;
  [[nodiscard]] const Grouping& grouping() const;
  [[nodiscard]] const Workload& workload() const;  // without times

  [[nodiscard]] DataParallelStatistics statistics() const;
  // With record_trace only (else ConfigError): this rank's spans so far, and the workload with the median
  // times measured in them. Both call synchronize().
  [[nodiscard]] Trace trace();
  [[nodiscard]] Workload profile();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// SHA-256, in hex, of all parameters of the module: names, shapes, dtypes and bytes in registration order.
std::string parameter_digest(const torch::nn::Module& model);

}  // namespace dear
