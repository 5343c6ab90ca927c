#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/schedule/codec/compression.h"
#include "dear/train/model/model.h"

namespace torch::nn {
class Module;
}

namespace dear {

class DataParallel;  // train/data_parallel/data_parallel.h

// Options of Rounds, the same on every rank.
struct RoundOptions {
  std::int64_t every = 64;     // steps of a round; at least 1, a multiple of `fragments`
  std::int64_t fragments = 1;  // in which the model travels, at turns spread over the round
  std::int64_t delay = 0;      // steps from a fragment's turn until its mean counts; below every / fragments
  // The weight of a replica's own parameters where global ones come in; from 0 (they are replaced) to 1.
  double mixing = 0;
  int inside = 1;  // ranks of a site, which train as one replica; consecutive ones, a divisor of all ranks
  // Outer gradients travel by it, for a model of fp32 or less; without momentum or decay, and no sketch.
  std::optional<Compression> compression{};
};

// The optimiser of the global parameters of one fragment, on one rank. Called on the program's thread.
class OuterOptimizer {
 public:
  virtual ~OuterOptimizer() = default;
  // Updates the parameters that it was made of by their gradients.
  virtual void step() = 0;
  // The state of the optimiser, in an encoding of its own, for a checkpoint.
  [[nodiscard]] virtual std::string state() const = 0;
  virtual void set_state(const std::string& state) = 0;
};
// Makes that of these parameters: for each fragment one.
using MakeOuter =
    std::function<std::unique_ptr<OuterOptimizer>(const std::vector<torch::Tensor>& parameters)>;

// An optimiser of libtorch's as the outer one:
//   outer_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true))
template <typename Class, typename Options>
MakeOuter outer_optimizer(Options options) {
  class Outer : public OuterOptimizer {
   public:
    Outer(const std::vector<torch::Tensor>& parameters, const Options& options)
        : optimizer_(parameters, options) {}
    void step() override { optimizer_.step(); }
    [[nodiscard]] std::string state() const override {
      torch::serialize::OutputArchive archive;
      optimizer_.save(archive);
      std::ostringstream bytes;
      archive.save_to(bytes);
      return bytes.str();
    }
    void set_state(const std::string& state) override {
      std::istringstream bytes(state);
      torch::serialize::InputArchive archive;
      archive.load_from(bytes);
      optimizer_.load(archive);
    }

   private:
    Class optimizer_;
  };
  return [options = std::move(options)](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<Outer>(parameters, options);
  };
}

// The report counts what Rounds did so far, on this rank.
struct RoundsReport {
  std::int64_t steps = 0;            // of this replica
  std::int64_t exchanges = 0;        // of a fragment, whose mean was applied
  double bytes = 0;                  // sent by this rank, where collectives send no more than they must
  double communication_seconds = 0;  // in which replicas exchanged, all of them having come to it
  double exposed_seconds = 0;        // in which the program waited for an exchange
  std::int64_t memory_bytes = 0;  // of this rank: global parameters and what travels; not the outer optimiser
  std::vector<std::vector<std::string>> fragments{};  // names of parameters
};

// Training by rounds (local SGD; DiLoCo, arXiv 2311.08105; Streaming DiLoCo, arXiv 2501.18512): replicas
// train apart, each by its own optimiser on its own batches, and exchange once in `every` steps. For links
// that are too slow for every step.
//
//   dear::Group group = dear::init();
//   dear::Rounds rounds(*model, group, {.every = 64, .fragments = 4, .delay = 2},
//                       dear::outer_optimizer<torch::optim::SGD>(
//                           torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true)));
//   torch::optim::AdamW adamw(model->parameters(), 1e-3);
//   dear::DataParallel dp(*model, adamw, rounds.inside());
//   rounds.follow(dp);
//   for (auto& batch : *loader) {
//     criterion(model->forward(batch.data), batch.target).backward();
//     dp.step();          // and, at a turn, the exchange of a fragment
//   }
//   rounds.end();
//
// The rule, of a fragment whose turn comes after step t, on replica m of k, with g its global parameters,
// alike on all ranks, theta_m the replica's own, and a the mixing:
//   after step t           delta = mean over m of (g - theta_m), which travels while training goes on
//   after step t + delay   g = outer(g, delta);   theta_m = a theta_m + (1 - a) g
// Without an outer optimiser g = g - delta, the mean of the replicas: local SGD. Turns are every / fragments
// steps apart, the last fragment's at the end of the round; a tensor is in one fragment, and fragments are
// about equally large. Between the turns nothing is sent. The inner optimiser's state stays with its replica.
// Buffers begin as rank 0's, and each replica keeps its own. Steps that are given up do not count.
//
// The global parameters and what travels are fp32, or fp64 where a trained parameter is; they take as much
// memory as the parameters once more, the largest fragment, and the outer optimiser's state.
//
// A replica that made no step in the round of a fragment does not count in its mean: see end(). An outer
// gradient that is NaN or infinite is an Error on every rank that names rank and parameter, where the
// exchange is applied; the global parameters stay as they were.
//
// One thread calls, that of the training. Every rank makes the same calls after the same steps.
class Rounds {
 public:
  // Every rank makes it together, before the DataParallel: parameters and buffers become those of rank 0. The
  // parameters that require gradients are trained; the tensors are kept alive. ConfigError for options out of
  // range and for a model that cannot be trained so, MismatchError where ranks give others.
  Rounds(const torch::nn::Module& model, const Group& group, RoundOptions options, MakeOuter outer = nullptr);
  Rounds(const Model& model, const Group& group, RoundOptions options, MakeOuter outer = nullptr);
  ~Rounds();  // waits for what is under way; while an exception unwinds it ends the groups, here and on the
              // peers
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  // The ranks of this replica, for its DataParallel; a group of one rank without sites.
  [[nodiscard]] const Group& inside() const;
  // Counts the steps of this DataParallel from now on. It must live while methods of this object are called.
  // ConfigError for one with one_copy or fp32_masters, whose parameters nobody else may write.
  void follow(DataParallel& dp);

  // Ends the rounds that are under way: steps since a fragment's last turn count, too, of every replica that
  // made some; then the parameters are the global ones, alike on all ranks. Every rank calls it, after any
  // number of steps: the way out of a loop in which replicas have different numbers of batches. Training may
  // go on after it. With feedback of a compression only after equally many steps (MismatchError): what a
  // replica without steps remembers would count.
  void end();

  // Exchanges the parameters for the global ones, of all replicas at their last turns, to evaluate or save
  // them, and back. Sends nothing. ConfigError for a step meanwhile.
  void show_global();
  void show_own();

  // A checkpoint of this rank needs this beside the model and its optimiser. Every rank calls it after the
  // same step. An exchange under way is awaited, and not applied.
  [[nodiscard]] std::map<std::string, torch::Tensor> state();
  // Puts it back, between steps, on every rank that of the same rank. ConfigError, on every rank and nothing
  // changed, for another number of replicas, of fragments, of steps a round or of delay, or another model;
  // MismatchError where ranks have states of different steps.
  void load_state(const std::map<std::string, torch::Tensor>& state);

  [[nodiscard]] RoundsReport report() const;

 private:
  class Replica;
  std::shared_ptr<Replica> replica_;
};

}  // namespace dear
