#pragma once

// size: the calls of one class, which a training program makes, each with its contract

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/data_parallel/compression_state.h"
#include "dear/train/data_parallel/data_parallel_options.h"
#include "dear/train/model/model.h"
#include "dear/train/optim/optimizer.h"
#include "dear/workload/layers/workload.h"

namespace dear {

struct TuningProgress;  // train/tuning/tuning_progress.h
class Watch;            // train/data_parallel/watch.h
namespace train {
class Trainer;
}

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
// forward() are called from one thread, which need not be that of the constructor. Every rank makes the same
// calls of ours in the same order.
//
// DataParallel tunes its buckets while training, unless the options name buckets. Results do not depend on
// them. Each change of buckets needs room, for its time, for a second set of buckets and for the optimiser's
// state whole: name given() buckets where memory is short.
class DataParallel {
 public:
  // Copies rank 0's parameters and buffers to all ranks. MismatchError on every rank, naming the first tensor
  // that differs, when the ranks' models or optimisers are not alike. ConfigError for an optimiser, or
  // memory, that cannot train as DataParallelOptions::updates says (on shards: SGD, Adam, AdamW, RMSprop,
  // Adagrad), and for a trained parameter that the optimiser does not hold. What one rank refuses, all
  // refuse. Tensors that only the optimiser holds are trained, too. A parameter keeps the memory order
  // (strides) that it has here. State that the optimiser has at the first step() (it was loaded) is taken
  // over: rank 0's, on all ranks, which must remember the same things.
  DataParallel(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
               DataParallelOptions options = {});
  // Trains tensors by an optimiser that need not be libtorch's objects. The tensors are kept alive.
  DataParallel(Model model, std::unique_ptr<Optimizer> optimizer, Group group,
               DataParallelOptions options = {});
  ~DataParallel();  // waits for what is on the wire, without throwing; call synchronize() before it
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Ends the iteration: the gradients of all backward passes since the last step() are reduced and applied. A
  // parameter that got no gradient on one rank counts as zero there; one that got none on any rank is left
  // alone, as libtorch leaves it: neither its values nor the optimiser's state change. The first call also
  // fixes the order of layers (as they were used), groups tensors into buckets and moves parameters and
  // gradients into them. Throws what went wrong in an operator since the last call. ConfigError, on every
  // rank, for a fusion that does not fit the model: name another by regroup(). After any other error no step
  // is applied: each call throws that error again, and peers learn of it at once.
  void step();

  // As step(), with gradients of a loss that was scaled. Returns false where the step was given up instead
  // (discard_step()), on every rank alike.
  bool step(const StepOptions& options);

  // Between the last backward() of a step and step(), any number of times, in any order; every rank makes the
  // same calls, MismatchError on each when not. The first of them waits until gradients are reduced, also of
  // ranks that were late, so nothing of the reductions is hidden any longer. No gradient may come after it
  // before step() (ConfigError that names the parameter). ConfigError under a policy that updates during the
  // backward pass, and where gradients travel compressed.
  //
  // clip_gradients_by_norm() scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as
  // torch::nn::utils::clip_grad_norm_() does; returns the norm that all of them had, over all parameter
  // groups, the same on every rank. With NaN or infinite gradients it is NaN or infinite, and gradients
  // become what libtorch makes of them; or ConfigError on every rank, nothing changed, with
  // error_if_nonfinite. ConfigError for a max_norm that is negative or NaN, and for a type that is not above
  // 0.
  double clip_gradients_by_norm(double max_norm, const NormOptions& options = {});
  // As clip_gradients_by_norm(), and the norm as a scalar of fp64. On a device with streams it lies there,
  // and the host does not wait for it: a norm that is not finite throws nothing then, and changes nothing
  // with error_if_nonfinite.
  torch::Tensor clip_gradients(double max_norm, const NormOptions& options = {});
  // Moves each element of a gradient that is below -limit or above limit there. ConfigError for a negative
  // limit or NaN.
  void clip_gradients_by_value(double limit);
  // Divides all gradients, each in its own type, by the scale of the loss, to clip them next. Returns whether
  // they are finite, on every rank; discard_step() if not. ConfigError for a scale that is not above 0, or
  // not finite.
  bool unscale_gradients(double loss_scale);
  // As unscale_gradients(), with a scale that is a tensor: multiplies all gradients by `inverse_scale`, of
  // one element (undefined: leaves them). Returns a scalar of fp32, 1 where an element was not finite, else
  // 0. On a device with streams both lie there, and the host waits for nothing. step_unless() comes next.
  torch::Tensor unscale_gradients_by(const torch::Tensor& inverse_scale);
  // Instead of step(): step() where `nonfinite` is 0, discard_step() where it is 1. With an `inverse_scale`
  // gradients are multiplied by it before. Every rank gives the same. The host waits for the number, but for
  // SGD (in Python: optimisers with fused=True) on a device with streams, from the second step taken on; one
  // that the device gives up is counted as taken in statistics() and metrics.
  void step_unless(const torch::Tensor& nonfinite, const torch::Tensor& inverse_scale = {});
  // Makes `.grad` of every parameter the mean over all ranks, whole on every rank: to be read, and changed,
  // replaced or dropped where every rank makes the same of it. step() applies what is there then. A gradient
  // that was changed before, where it is whole on no rank, is a ConfigError at step(). Where ranks update
  // shards (policy dear) the rest of the means comes by an all-gather, each time this is called.
  void reduce_gradients();

  // The mean over ranks, the same on each, as of the loss that a closure returns. After reduce_gradients().
  double mean_over_ranks(double mine);

  // Instead of step(): gives up the iteration, on every rank. Gradients are dropped, nothing is updated; what
  // was on its way to other ranks is awaited. ConfigError under a policy that updates during the backward
  // pass. A zero_grad() (to none, its default) before the next backward pass means the same.
  void discard_step();

  // Parameters are whole and gradients zero when it returns. Not needed before operators read parameters
  // (they wait by themselves), but before raw data pointers do. With buffers to make those of rank 0 (see
  // BufferSync) every rank calls it: MismatchError on each when one makes another call, or is between
  // backward and step(), where it only waits for this rank's parameters.
  void synchronize();

  // With BufferSync::at_forward (else ConfigError): buffers become rank 0's now. Every rank calls it, before
  // each forward pass that trains; each call waits for a broadcast of all buffers. Nothing under no_sync().
  void broadcast_buffers();

  // As synchronize(), for this rank alone: sends nothing.
  void wait();

  // The gradients of the next step are a mean over so many samples on this rank: they are averaged over all
  // samples of all ranks, not over ranks (train/data_parallel/join.h has uneven numbers of steps). Before the
  // first backward of the step, on every rank or on none (MismatchError). With 0, this rank's gradients do
  // not count.
  void samples(std::int64_t count);
  // With DataParallelOptions::balance (else ConfigError): how many samples of a batch each rank is to take.
  [[nodiscard]] const BatchShares& batch_shares() const;

  // Whether a gradient has arrived since the last step().
  [[nodiscard]] bool gradients_arrived() const;

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
  void defer();  // what the guard calls, for a language whose guards are no objects of C++
  void resume();

  // Puts tensors into other buckets, between a step() and the next backward: what training computes stays the
  // same, bit for bit, and the optimiser's state moves along with the shards. Every rank calls it after the
  // same step with the same fusion: MismatchError on each when not. Before the first step() it only replaces
  // first buckets. No planner or tuner changes them again. ConfigError when a gradient of the next step is
  // there already, or `fusion` fits no such model. After an error the old buckets stay. For its time it needs
  // room for a second set of buckets, and for each vector of optimiser state whole.
  void regroup(Fusion fusion);

  // As regroup(), with shards of other sizes: see DataParallelOptions::shards, which says what is refused;
  // empty for equal ones. Buckets stay, and are not tuned again. ConfigError in a Join.
  void reshard(const std::vector<double>& weights);

  // As regroup(), after layers came, went or were replaced: trains what the model and the optimiser have now.
  // All values become rank 0's, state stays with what stays: docs/training_models.md.
  void rebuild(torch::nn::Module& model);
  void rebuild(const Model& model);

  // Whether the optimiser's state is here, in shards: from the first step() on, but not on a rank that trains
  // alone.
  [[nodiscard]] bool has_state() const;
  // Whether the program's optimiser updates the parameters (DataParallelOptions::updates), as where one rank
  // trains alone. Its state is with it then.
  [[nodiscard]] bool by_program() const;
  // Whether a step() has made buckets; never where one rank trains alone.
  [[nodiscard]] bool has_stepped() const;
  struct StateOfParameter {
    torch::Tensor parameter;
    std::optional<OptimizerState> state;  // vectors of the parameter's shape; none if it was never updated
  };
  // What the optimiser remembers of each trained parameter, gathered from the shards, whole on every rank.
  // Every rank calls it after the same step(), before the next backward: MismatchError on each when not.
  // Passes in no_sync() may come before it. Takes room for the state of all parameters. Before the first
  // step(): what the optimiser itself holds.
  [[nodiscard]] std::vector<StateOfParameter> optimizer_state();
  // Replaces it, after a step() and before the next backward, by the same on every rank, which calls it after
  // the same step(): MismatchError on each when not. ConfigError on every rank, nothing changed, for a vector
  // whose shape or type is not the parameter's (fp32, too, with fp32_masters). A parameter that is not in
  // `states` has no state then. Before the first step() load it into the optimiser instead.
  void load_optimizer_state(const std::vector<StateOfParameter>& states);

  // Reports on this rank; nothing but zeros without compression, or before the first step(). Between a step()
  // and the next backward.
  [[nodiscard]] CompressionReport compression_report();
  // To be saved by each rank, and given back to the rank of the same number: the training then goes on bit
  // for bit. After the first step() (ScheduleError before it, and without compression), before the next
  // backward.
  [[nodiscard]] CompressionStates compression_states();
  // ConfigError for a state that is not of this model and compression; nothing has changed for parameters
  // that come after it.
  void load_compression_states(const CompressionStates& states);

  // There from the first step() on; ScheduleError before it. Until the next regroup(), or the next step()
  // where buckets are planned or tuned.
  [[nodiscard]] const Schedule& schedule() const;
  [[nodiscard]] const Grouping& grouping() const;
  [[nodiscard]] const Workload& workload() const;  // without times

  // Bucket hooks, and metrics of each step.
  [[nodiscard]] Watch& watch();
  [[nodiscard]] DataParallelStatistics statistics() const;
  // Returns rank 0's trials of buckets (train/tuning/tuning_progress.h); null where nothing is tuned. Until
  // the next step().
  [[nodiscard]] const TuningProgress* tuning() const;
  // With record_trace only (else ConfigError): this rank's spans so far, and the workload with the median
  // times measured in them. Both call synchronize().
  [[nodiscard]] Trace trace();
  [[nodiscard]] Workload profile();

 private:
  friend class Join;
  friend class train::TrainingState;
  friend class train::PartOfTraining;
  friend class train::Trainer;
  std::unique_ptr<train::Trainer> trainer_;
};

}  // namespace dear
