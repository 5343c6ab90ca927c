#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace dear {

class DataParallel;  // train/data_parallel/data_parallel.h
namespace systems::kfac {
class Preconditioner;
}

// Options of a Kfac, the same on every rank.
struct KfacOptions {
  // The strategy says who inverts which factor, and when factors travel: "d-kfac", "mpd-kfac", "spd-kfac", or
  // the last two with "-owner" (methods::kfac::strategies()). The result does not depend on it, but for
  // rounding.
  std::string strategy = "spd-kfac";
  // The rule by which factors travel together: "alone", "threshold", "rule", "exact" or "together"; "" for
  // what the strategy does. Groups never mix factors of inputs with those of gradients unless all travel
  // together after the backward pass.
  std::string fusion{};
  double damping = 1e-3;  // added to the diagonals of factors before they are inverted; above 0, <= 1e30
  // Splits the damping between the two factors of a layer in proportion to the roots of their mean diagonals
  // (Martens and Grosse 2015, section 6.3); else both get all of it.
  bool pi_correction = false;
  double ema = 0.95;  // the weight of the old running average of a factor; above 0 and below 1
  // Scales all preconditioned gradients v of a step by min(1, sqrt(kl_clip / |sum of lr^2 <v, gradient>|));
  // none: they are taken as they are.
  std::optional<double> kl_clip = 1e-3;
  std::int64_t factor_every = 1;   // steps from one renewal of the factors to the next
  std::int64_t inverse_every = 1;  // likewise of the inverses: a multiple of factor_every
  // Names of layers, or of modules whose layers are all meant, that keep their plain gradients.
  std::vector<std::string> exclude{};
  std::int64_t largest_factor = 8192;  // a layer with a larger dimension is refused: exclude it
  // Steps that are measured before fusion and placement are planned anew, by rank 0's times; 0: what the
  // first step took, and a usual network, decide for good.
  std::int64_t replan_after = 5;
};

// A layer for a Kfac whose model is no libtorch module. `weight` is the parameter itself, of 2 dimensions
// (outputs, inputs) for a linear layer, and of 4 (outputs, inputs, height, width) for a convolution.
struct KfacLayer {
  std::string name;
  torch::Tensor weight;
  torch::Tensor bias{};     // undefined without one
  std::int64_t groups = 1;  // of a convolution
  // Whether the layer is in training mode; called where the layer is used. Without it it always is.
  std::function<bool()> in_training{};
};
// Linear and Conv2d modules within `model`, in the order of their registration, each weight once.
std::vector<KfacLayer> kfac_layers_of(torch::nn::Module& model);

// KfacStep says what one step() of a Kfac is to know.
struct KfacStep {
  // For KfacOptions::kl_clip: of all layers. Without it that of the parameter group of the layer's weight,
  // where the optimiser is one of libtorch's.
  std::optional<double> learning_rate{};
  // By what the loss of each backward pass was multiplied, such as 1 / k where k passes make one step, or the
  // scale of mixed precision. Factors are of the loss without it. Gradients are preconditioned as they are:
  // unscale them before.
  double loss_scale = 1;
};

// The work of a Kfac so far, on this rank.
struct KfacReport {
  std::int64_t steps = 0;
  std::vector<std::string> layers;              // that are preconditioned
  std::map<std::string, std::string> left_out;  // of Linear and Conv2d: name, why its gradient stays plain
  std::int64_t late_uses = 0;                   // of layers, left out since their factor was on its way
  std::int64_t nonfinite_factors = 0;           // renewals left out since a factor was NaN or infinite
  std::int64_t raised_dampings = 0;             // inverses that needed a larger damping
  std::int64_t given_up_inverses = 0;           // that became the identity
  std::string plan{};                           // groups and placement in words; "" before the first step
  double waited_seconds = 0;                    // for factors and inverses on their way
};

// K-FAC (Martens and Grosse 2015, arXiv 1503.05671; for convolutions Grosse and Martens 2016, arXiv
// 1602.01407) for a model that a DataParallel trains: gradients of linear layers and convolutions become
// natural gradients, by the curvature of the batches of all ranks, before any optimiser applies them.
//
//   dear::DataParallel dp(*model, sgd, group);
//   dear::Kfac kfac(*model, dp, {.damping = 1e-2});
//   for (auto& batch : *loader) {
//     criterion(model->forward(batch.data), batch.target).backward();
//     kfac.step();        // gradients are averaged over ranks, then preconditioned in place
//     dp.step();
//   }
//
// The loss is a mean over samples; of a linear layer on sequences each position is one. Inputs and output
// gradients of layers are caught where operators use their weights, whichever module calls them, in forward
// passes that are to have a backward and in training mode. All uses between two steps count; but a layer that
// is used more often than in any step before may have sent its factor already, and what comes later is left
// out (KfacReport::late_uses). What the ranks compute is what one process computes on the union of their
// batches, of which each rank may have any number of samples. Factors and inverses travel in a group of their
// own (Shi et al. 2021, arXiv 2107.06533), beside the gradients, in an order that is fixed.
//
// Layers of other kinds, frozen, excluded or grouped ones keep their plain gradients. One that no rank used,
// or of which no factor could be inverted yet, does too. A factor with NaN or infinite elements changes
// nothing; the inverse of before stays. A factor that is not positive definite gets ten times the damping,
// until it is, six times at most, and then counts as the identity. The step() after one that the DataParallel
// gave up renews no factor.
//
// step(), state(), load_state() and the passes are called from one thread, on every rank. `dp` must outlive
// this object, and the tensors are kept alive. After an error of step() the training has ended, here and on
// the peers, but for ConfigErrors that every rank throws.
class Kfac {
 public:
  // Every rank makes it together, between a step() and the next backward. ConfigError for options out of
  // range, a layer to exclude that there is not, a factor that is too large, a model without any layer to
  // precondition, and a DataParallel under policy dear-eager or with compression, or that another Kfac
  // serves; what one rank refuses, all refuse. MismatchError, on every rank, where layers or options differ,
  // or one makes another call.
  Kfac(torch::nn::Module& model, DataParallel& dp, KfacOptions options = {});
  Kfac(std::vector<KfacLayer> layers, DataParallel& dp, KfacOptions options = {});
  ~Kfac();  // waits for what is on the wire
  Kfac(const Kfac&) = delete;
  Kfac& operator=(const Kfac&) = delete;

  // Between the last backward() of a step and DataParallel::step(): makes `.grad` of every parameter the mean
  // over ranks (DataParallel::reduce_gradients()), and preconditions those of its layers in place. Throws
  // what went wrong in an operator since the last call. `step` is the same on every rank: MismatchError on
  // each where rates or scales differ. ConfigError in a Join, for kl_clip without a
  // learning rate, for numbers out of range, and where no gradient arrived since the last
  // DataParallel::step(), or none since the last call; a rank of samples(0) needs none.
  void step(const KfacStep& step = {});

  // Factors, inverses and the number of steps, by name, to be saved; whole on every rank. Every rank calls
  // it, between a step() and the next backward. Before the first step(): what was loaded.
  [[nodiscard]] std::map<std::string, torch::Tensor> state();
  // Goes on from there: every rank with the same, between a step() and the next backward. ConfigError that
  // names a tensor that is missing, not of this model, or of another shape.
  void load_state(const std::map<std::string, torch::Tensor>& state);

  [[nodiscard]] KfacReport report() const;

 private:
  std::shared_ptr<systems::kfac::Preconditioner> impl_;
};

}  // namespace dear
