#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

namespace dear::train {

// The user's optimiser on flat vectors: a twin of the same class and options, whose parameters are parts of
// buckets. An elementwise update of a flat vector is, element for element, the update of the tensors in it,
// so a rank may update any part of a bucket by itself. The user's object keeps the options; the twin holds
// the state.
class ElementwiseOptimizer {
 public:
  // A part of a bucket that one parameter group updates, 1-D, and its gradient.
  struct FlatRun {
    std::uint32_t rule;
    torch::Tensor parameters;
    torch::Tensor gradients;
  };

  // ConfigError naming those supported (SGD, Adam, AdamW, RMSprop, Adagrad), or for one that has state
  // already.
  static void require_supported(const torch::optim::Optimizer& original);

  // Parts are what is updated at a time: buckets, or pieces of them.
  ElementwiseOptimizer(const torch::optim::Optimizer& original,
                       std::vector<std::vector<FlatRun>> runs_by_part);

  // The options of `original` as they are now: those of the updates that follow. Not during an update.
  void capture_options(const torch::optim::Optimizer& original);
  // Whether they are still those of `original`.
  [[nodiscard]] bool has_options_of(const torch::optim::Optimizer& original) const;
  void update(std::size_t part);

  // What the optimiser remembers of an element from step to step: so many vectors at most (exp_avg, ...).
  static constexpr std::size_t kStateVectors = 3;
  struct StateOutline {
    std::int64_t steps = 0;  // that were taken; 0 where the optimiser does not count them
    std::array<bool, kStateVectors> has_vector{};  // which of them this class and these options keep
  };
  // Of the runs that this rank updates; nothing where it updates none, or before the first update.
  [[nodiscard]] StateOutline outline() const;
  // `flat` is a vector over the whole bucket of the part, of which this rank's runs are read or written. Not
  // during an update. write_state() is for one that has taken no steps yet.
  void read_state(std::size_t part, std::size_t vector, torch::Tensor& flat) const;
  void write_state(const StateOutline& outline, std::size_t part, std::size_t vector,
                   const torch::Tensor& flat);

 private:
  std::unique_ptr<torch::optim::Optimizer> twin_;
  // by part, then by parameter group
  std::vector<std::vector<std::vector<torch::Tensor>>> parameters_;
};

}  // namespace dear::train
