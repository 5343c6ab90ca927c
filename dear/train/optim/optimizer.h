#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/train/optim/exact_sum.h"

namespace torch::optim {
class Optimizer;
}

namespace dear {

// OptimizerState holds what an optimiser remembers of one tensor from step to step.
struct OptimizerState {
  std::map<std::string, torch::Tensor> vectors;  // by name, with one value for each element: momentum, ...
  // All the rest, such as a count of steps, in the optimiser's own encoding; of a tensor that one rank owns
  // whole also tensors of other shapes.
  std::string scalars;
};

// The flat optimiser beside a program's optimiser has the same class and options, and updates parts of
// buckets: flat vectors, or tensors that are whole. It holds the state of these vectors; the program's object
// keeps the options.
class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;
  // Takes over the options that the program's object has now: those of the updates that follow. Not during
  // step().
  virtual void capture_options() = 0;
  // Whether they are still those of the program's object.
  [[nodiscard]] virtual bool has_current_options() const = 0;
  // The tensors among the options that it took over, such as a learning rate: copies, which step() reads and
  // the next capture lets go of.
  [[nodiscard]] virtual std::vector<torch::Tensor> option_tensors() const { return {}; }
  // One step of these tensors, by parameter group; each has its gradient. On any thread, one at a time.
  virtual void step(const std::vector<std::vector<torch::Tensor>>& by_group) = 0;
  // Whether there is a step that a device decides on. step_unless() is one for tensors that have taken a step
  // before, or were given state: where `found`, one element of fp32 on their device, is 1, and not 0, it
  // changes neither them nor what the flat optimiser remembers, and the host waits for nothing. The default
  // throws.
  [[nodiscard]] virtual bool skips_on_device() const { return false; }
  virtual void step_unless(const std::vector<std::vector<torch::Tensor>>& by_group,
                           const torch::Tensor& found);
  // Where the optimiser takes norms of whole tensors (Optimizer::norms()) a step is these two instead. The
  // first returns, of each tensor in turn, the sums of squares over it whose roots the norms are; the second
  // is given the norms in the same order, of the whole tensors that those are parts of. Defaults throw.
  virtual std::vector<ExactSum> begin_step(const std::vector<std::vector<torch::Tensor>>& by_group);
  virtual void end_step(const std::vector<double>& norms);
  // Returns what the flat optimiser remembers of a tensor of a parameter group that step() has seen. The
  // vectors have the shape that the tensor has there, and are shared, not copied.
  [[nodiscard]] virtual std::optional<OptimizerState> state(std::size_t group,
                                                            const torch::Tensor& tensor) const = 0;
  virtual void set_state(std::size_t group, const torch::Tensor& tensor,
                         const std::optional<OptimizerState>& state) = 0;
};

// FlatVectors says how an optimiser wants its flat vectors cut.
struct FlatVectors {
  // Elements at most, a multiple of every width of vector instructions. An optimiser that goes over its
  // vectors operator by operator wants them short, to stay in a core's cache meanwhile; for a fused one each
  // is a call.
  std::int64_t longest = 128 * 1024;
  // Tensors that lie side by side make one vector, with the padding between them. A fused operator may round
  // the last elements of a vector, fewer than its width, otherwise than the rest: then each tensor is a
  // vector.
  bool joined = true;
  // Each tensor is given as it is, in its shape, and to one rank alone. What stands above counts for nothing
  // then.
  bool whole = false;
};

// Ownership decides which rank updates which parameter, where updates are of shards.
enum class Ownership : std::uint8_t {
  cut,        // each rank its shard of a bucket, also where its border cuts a tensor
  automatic,  // likewise, but one rank the whole of a tensor that the optimiser must see whole
  whole       // one rank the whole of each tensor
};

// Updates says who updates parameters from their mean gradients.
enum class Updates : std::uint8_t {
  automatic,  // sharded for classes that are known to allow it; else program
  sharded,    // flat optimisers, each on the parts of buckets that its rank owns
  program  // the program's optimiser itself, on each rank, in step(): as on one process, or under PyTorch's
           // DDP
};

// A program's optimiser as DataParallel needs it: the seam on which optimisers of C++ and of Python stand.
// Its methods are called on the program's thread.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // The name of its class.
  [[nodiscard]] virtual std::string name() const = 0;
  // Chooses who makes the updates, and how tensors are owned where updates are of shards: called before
  // vectors() is asked, and before the first step. Returns why the program's object must make them; nothing
  // where updates are of shards, so that make_flat() will be called. ConfigError for an optimiser that cannot
  // train so: on shards, when an update of a flat vector is not, element by element and but for norms(), that
  // of its tensors, or depends on more than options, gradients and state of the tensors that it is given.
  virtual std::optional<std::string> choose_updates(Updates updates, Ownership ownership) = 0;
  [[nodiscard]] virtual std::vector<std::vector<torch::Tensor>> parameter_groups() const = 0;
  // Whether its parameter groups hold these tensors, in this order. Asked in every step: parameter_groups()
  // copies.
  [[nodiscard]] virtual bool holds(
      const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const = 0;
  [[nodiscard]] virtual FlatVectors vectors(std::size_t parameter_group) const = 0;
  // How many norms of a whole tensor its update takes; 0 for an elementwise one. Others are given vectors
  // that are of one tensor each.
  [[nodiscard]] virtual std::size_t norms() const { return 0; }
  // The options of its parameter groups, for another rank's object of the same class, in an encoding of its
  // own.
  [[nodiscard]] virtual std::string options() const = 0;
  virtual void set_options(const std::string& options) = 0;
  // A step of the program's object itself: where it makes the updates, and where one rank trains alone.
  virtual void step() = 0;
  [[nodiscard]] virtual std::unique_ptr<FlatOptimizer> make_flat() const = 0;

  // Returns what the optimiser remembers of one of its tensors; vectors have the tensor's shape.
  [[nodiscard]] virtual std::optional<OptimizerState> state(const torch::Tensor& tensor) const = 0;
  virtual void set_state(const torch::Tensor& tensor, const std::optional<OptimizerState>& state) = 0;
  // Options by parameter group, and OptimizerState::scalars as numbers, by the names that Python's
  // torch.optim gives them, but beta1 and beta2; a bool is 0 or 1. Nothing for an optimiser of another
  // language, which keeps them itself.
  using Options = std::map<std::string, double>;
  [[nodiscard]] virtual std::vector<Options> group_options() const { return {}; }
  virtual void set_group_options(const std::vector<Options>& /*options*/) {}
  [[nodiscard]] virtual std::map<std::string, double> read_scalars(const std::string& /*scalars*/) const {
    return {};
  }
  [[nodiscard]] virtual std::string write_scalars(const std::map<std::string, double>& /*numbers*/) const {
    return {};
  }
  // The state lies in shards from now on: the program's object forgets it, and refuses to save none in its
  // place.
  virtual void state_leaves() = 0;
  // Undoes that: the object is as if it had taken no step.
  virtual void state_returns() noexcept = 0;
  // False when, since state_leaves(), the program loaded state into the object, or stepped it.
  [[nodiscard]] virtual bool state_is_away() const = 0;
};

// An optimiser of libtorch's or a TensorNormOptimizer (LAMB, LARS), which must outlive the result.
// Elementwise are SGD, Adam, AdamW, RMSprop and Adagrad.
std::unique_ptr<Optimizer> make_optimizer(torch::optim::Optimizer& optimizer);

// Several that train one model, each its own parameters: their parameter groups one after another.
std::unique_ptr<Optimizer> make_optimizer(std::vector<std::unique_ptr<Optimizer>> optimizers);

}  // namespace dear
