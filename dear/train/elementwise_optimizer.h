#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "dear/base/ids.h"
#include "dear/collective/shard.h"

namespace dear::train {

// The user's optimiser on flat vectors: a twin of the same class and options, whose parameters are parts of
// buckets. An elementwise update of a flat vector is, element for element, the update of the tensors in it,
// so a rank may update any part of a bucket by itself. The user's object keeps the options; the twin holds
// the state.
class ElementwiseOptimizer {
 public:
  // The part of a run that belongs to one tensor: [begin, end), its own elements first, then padding.
  struct Stretch {
    TensorId tensor;
    std::int64_t begin, end, elements;
  };
  // A part of a bucket that one parameter group updates, 1-D, and its gradient. Stretches cover it,
  // ascending.
  struct FlatRun {
    std::uint32_t parameter_group;
    torch::Tensor parameters;
    torch::Tensor gradients;
    std::vector<Stretch> stretches;
  };

  // ConfigError naming those supported (SGD, Adam, AdamW, RMSprop, Adagrad), or for one that has state
  // already.
  static void require_supported(const torch::optim::Optimizer& original);

  // Parts are what is updated at a time: buckets, or chunks of them.
  ElementwiseOptimizer(const torch::optim::Optimizer& original,
                       std::vector<std::vector<FlatRun>> runs_by_part);

  // The options of `original` as they are now: those of the updates that follow. Not during an update.
  void capture_options(const torch::optim::Optimizer& original);
  // Whether they are still those of `original`.
  [[nodiscard]] bool has_options_of(const torch::optim::Optimizer& original) const;
  // Leaves out tensors whose gradient is marked as unused: see [Note: unused parameters].
  void update(std::size_t part);

  // What the optimiser remembers of an element from step to step: so many vectors at most (exp_avg, ...).
  static constexpr std::size_t kStateVectors = 3;
  // By vector: whether this class and these options keep it, in the runs that this rank updates. None before
  // the first update, and on a rank that updates nothing.
  using StateVectors = std::array<bool, kStateVectors>;
  [[nodiscard]] StateVectors state_vectors() const;
  // How often a tensor was updated: raises `updates[tensor]` to what this rank knows of those in the part.
  void read_updates(std::size_t part, std::vector<std::int64_t>& updates) const;
  // For an optimiser that has taken no steps yet: before write_state(). Tensors without updates get no state.
  void write_updates(std::size_t part, const std::vector<std::int64_t>& updates);
  // `flat` is a vector over the whole bucket of the part, of which this rank's runs are read or written. Not
  // during an update.
  void read_state(std::size_t part, std::size_t vector, torch::Tensor& flat) const;
  void write_state(std::size_t part, std::size_t vector, const torch::Tensor& flat);

 private:
  // Tensors with one history: updated together as often as each of them was. [Note: unused parameters]
  struct Run {
    torch::Tensor parameters;  // with its gradient
    std::vector<Stretch> stretches;
    std::int64_t updates = 0;
  };
  using Runs = std::vector<Run>;
  [[nodiscard]] Runs cut(const Run& run, const std::vector<std::size_t>& borders);
  void separate(Runs& runs, const std::function<std::int64_t(const Stretch&, const Run&)>& kind);

  std::unique_ptr<torch::optim::Optimizer> twin_;
  std::vector<std::vector<Runs>> runs_;  // by part, then by parameter group
};

// The user's object has no state while a twin has it. Until it is destroyed, saving that object (torch::save)
// is a ConfigError in place of a file without state.
class StateElsewhere {
 public:
  explicit StateElsewhere(torch::optim::Optimizer& original);
  ~StateElsewhere();
  StateElsewhere(const StateElsewhere&) = delete;
  StateElsewhere& operator=(const StateElsewhere&) = delete;
  // False when the program loaded state into the object, or stepped it.
  [[nodiscard]] bool holds() const;

 private:
  torch::optim::Optimizer& original_;
  const torch::optim::OptimizerParamState* stands_in_;
  std::size_t size_;
};

// [Note: unused parameters] A parameter that no rank used in an iteration is not updated, as in plain
// libtorch, where its gradient is undefined: its state and its step count stay as they were. Ranks tell each
// other by the gradient itself. Buckets hold +0.0 before a backward pass adds to them, and a sum that begins
// with +0.0 is never -0.0. So a rank fills the gradient of a parameter that it did not use with -0.0: a sum
// over ranks is -0.0 in all elements only where each rank wrote it. That costs no message, and no look at
// gradients but at the first element of each tensor. A program that makes -0.0 of a gradient that
// is zero in all elements, as neg_() does, says the same.

// Marks these elements of a flat vector of gradients, unless one of them is not +0.0.
void mark_unused(torch::Tensor& gradients, const Range& elements);
[[nodiscard]] bool is_marked_unused(const torch::Tensor& gradients, const Range& elements);  // of one tensor

}  // namespace dear::train
