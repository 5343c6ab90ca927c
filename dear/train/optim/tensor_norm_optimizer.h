#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>
#include <torch/types.h>

#include "dear/train/optim/optimizer.h"

namespace dear {

// TensorNormState is the state that a TensorNormOptimizer keeps of a tensor.
struct TensorNormState : torch::optim::OptimizerCloneableParamState<TensorNormState> {
  std::int64_t step = 0;                         // updates so far
  std::map<std::string, torch::Tensor> vectors;  // of the tensor's shape, by name

  // The vector of this name; of zeros when there was none.
  torch::Tensor& vector_like(const std::string& name, const torch::Tensor& tensor);
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// An optimiser whose update of an element depends on this element and on norms of whole tensors, as those of
// LAMB and LARS do. It trains one process as every torch::optim::Optimizer does. Under a DataParallel each
// rank updates its parts of tensors, and what the norms need of other ranks is exchanged between the two
// halves of an update. Norms are sums of exact squares (exact_sum.h): the same bits for every number of
// ranks, policy and grouping.
//
// Another such optimiser is a class that derives from this one, with options of its own.
class TensorNormOptimizer : public torch::optim::Optimizer {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using Optimizer::Optimizer;

  // Both halves for every parameter that has a gradient.
  torch::Tensor step(LossClosure closure = nullptr) final;

  // The number of norms that the update of a tensor takes.
  [[nodiscard]] virtual std::size_t norms() const = 0;
  // The first half of an update. `part` is a parameter, or a part of one as a 1-D tensor; it has its
  // gradient, and `state` is that of the part. Returns norms() tensors of the shape of `part`: those whose
  // 2-norms, over the whole parameter, are needed. Changes `state` and what it returns, not `part`.
  virtual std::vector<torch::Tensor> propose(const torch::Tensor& part,
                                             const torch::optim::OptimizerOptions& options,
                                             TensorNormState& state) = 0;
  // The second half changes `part`. `proposed` is what the first returned, and `norms` are theirs.
  virtual void apply(torch::Tensor& part, const torch::optim::OptimizerOptions& options,
                     TensorNormState& state, const std::vector<torch::Tensor>& proposed,
                     const std::vector<double>& norms) = 0;
  // An optimiser of this class for these groups, with this one's defaults.
  [[nodiscard]] virtual std::unique_ptr<TensorNormOptimizer> make_like(Groups groups) const = 0;

  [[nodiscard]] TensorNormState& state_of(const torch::Tensor& part);  // empty at first
};

namespace optim {
// Options of LAMB and LARS in an archive of libtorch, by name.
void save_options(torch::serialize::OutputArchive& archive, const torch::optim::OptimizerOptions& options);
void load_options(torch::serialize::InputArchive& archive, torch::optim::OptimizerOptions& options);
}  // namespace optim

// What the options of LAMB and LARS, of the class Own, have alike.
template <typename Own>
struct TensorNormOptions : torch::optim::OptimizerCloneableOptions<Own> {
  void serialize(torch::serialize::InputArchive& archive) override { optim::load_options(archive, *this); }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    optim::save_options(archive, *this);
  }
  double get_lr() const override { return static_cast<const Own&>(*this).lr(); }
  void set_lr(const double lr) override { static_cast<Own&>(*this).lr(lr); }
};

// Where weight decay acts: in what is scaled by the trust ratio, as the papers have it, or outside, by
// 1 - lr * weight_decay, as in AdamW.
enum class WeightDecay : std::uint8_t { scaled, decoupled };

// What the class Own has of its options, whatever its update is. Options are as LAMBOptions.
template <typename Own, typename Options>
class TensorNormOptimizerOf : public TensorNormOptimizer {
 public:
  TensorNormOptimizerOf(const Groups& groups, const Options& defaults)
      : TensorNormOptimizer(groups, std::make_unique<Options>(defaults)) {}
  [[nodiscard]] std::unique_ptr<TensorNormOptimizer> make_like(Groups groups) const override {
    return std::make_unique<Own>(std::move(groups), static_cast<const Options&>(defaults()));
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    torch::optim::serialize<TensorNormState, Options>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::optim::serialize<TensorNormState, Options>(archive, *this);
  }

 protected:
  static void decay_outside(torch::Tensor& part, const Options& options) {
    if (options.weight_decay() != 0 && options.decay() == WeightDecay::decoupled)
      part.mul_(1 - options.lr() * options.weight_decay());
  }
};

}  // namespace dear
