#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>
#include <torch/types.h>

// An optimiser that a program wrote, which must see whole matrices, for the tests of train.
namespace dear::train::testing {

struct MuonOptions : torch::optim::OptimizerCloneableOptions<MuonOptions> {
  MuonOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
};

// Beside the momentum it keeps a tensor of another shape: how long each row of the updates was so far.
struct MuonState : torch::optim::OptimizerCloneableParamState<MuonState> {
  TORCH_ARG(torch::Tensor, momentum);
  TORCH_ARG(torch::Tensor, lengths);

 public:
  void serialize(torch::serialize::InputArchive& archive) override {
    archive.read("momentum", momentum());
    archive.read("lengths", lengths());
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("momentum", momentum());
    archive.write("lengths", lengths());
  }
};

class Muon : public torch::optim::Optimizer {
 public:
  Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups, MuonOptions defaults)
      : Optimizer(groups, std::make_unique<MuonOptions>(defaults)) {}

  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const auto& group : param_groups_) {
      const double lr = static_cast<const MuonOptions&>(group.options()).lr();
      for (torch::Tensor matrix : group.params()) {
        if (!matrix.grad().defined()) continue;
        TORCH_CHECK(matrix.dim() == 2, "Muon takes matrices");
        auto& mine = state_[matrix.unsafeGetTensorImpl()];
        if (!mine) {
          auto fresh = std::make_unique<MuonState>();
          fresh->momentum(torch::zeros_like(matrix)).lengths(torch::zeros({matrix.size(0)}));
          mine = std::move(fresh);
        }
        auto& state = static_cast<MuonState&>(*mine);
        state.momentum().mul_(0.9).add_(matrix.grad());
        torch::Tensor x = state.momentum() / (state.momentum().norm() + 1e-7);
        for (int i = 0; i < 3; ++i) x = 1.5 * x - 0.5 * x.mm(x.t()).mm(x);
        state.lengths().add_(x.square().sum(1).to(torch::kFloat32));
        matrix.add_(x / (1 + 0.1 * state.lengths().unsqueeze(1)), -lr);
      }
    }
    return {};
  }
};

}  // namespace dear::train::testing
