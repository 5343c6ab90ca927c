// Trainings with other optimisers than AdamW on cut tensors, saved and put back.

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/data_parallel/testing/muon.h"
#include "dear/train/optim/class_access.h"
#include "dear/train/optim/lamb.h"

namespace dear::optimisers_test {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::kRows;
using train::testing::Muon;
using train::testing::MuonOptions;
using train::testing::MuonState;
using train::testing::run_all;
using Tensors = std::vector<torch::Tensor>;

// What a program holds, and DeAR's view of it.
struct Optimisers {
  std::shared_ptr<void> own;
  std::unique_ptr<Optimizer> view;
};

Tensors of(const Tensors& all, bool matrices) {
  Tensors some;
  for (const torch::Tensor& tensor : all)
    if ((tensor.dim() > 1) == matrices) some.push_back(tensor);
  return some;
}

template <typename Matrices>
Optimisers with_adamw(std::shared_ptr<Matrices> matrices, std::unique_ptr<Optimizer> view,
                      const Tensors& all) {
  const auto adamw = std::make_shared<torch::optim::AdamW>(of(all, false), torch::optim::AdamWOptions(1e-2));
  std::vector<std::unique_ptr<Optimizer>> both;
  both.push_back(std::move(view));
  both.push_back(make_optimizer(*adamw));
  return {std::make_shared<std::pair<std::shared_ptr<Matrices>, std::shared_ptr<torch::optim::AdamW>>>(
              std::move(matrices), adamw),
          make_optimizer(std::move(both))};
}

Optimisers adamw(const Tensors& all) {
  const auto one = std::make_shared<torch::optim::AdamW>(all, torch::optim::AdamWOptions(1e-2));
  return {one, make_optimizer(*one)};
}
Optimisers lamb(const Tensors& all) {
  const auto one = std::make_shared<LAMB>(all, LAMBOptions(1e-2));
  return {one, make_optimizer(*one)};
}
Optimisers sgd_and_adamw(const Tensors& all) {
  const auto sgd =
      std::make_shared<torch::optim::SGD>(of(all, true), torch::optim::SGDOptions(0.1).momentum(0.9));
  return with_adamw(sgd, make_optimizer(*sgd), all);
}
// Muon's state has a tensor that is of another shape than the parameter.
Optimisers muon_and_adamw(const Tensors& all) {
  const std::vector groups{torch::optim::OptimizerParamGroup(of(all, true))};
  const auto muon = std::make_shared<Muon>(groups, MuonOptions(0.02));
  return with_adamw(muon, make_optimizer<Muon, MuonOptions, MuonState>(*muon), all);
}

struct Case {
  const char* name;
  Optimisers (*make)(const Tensors& all);
  Ownership ownership = Ownership::cut;
  at::ScalarType type = torch::kFloat32;  // of parameters; with fp32 masters where it is another
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

struct Training {
  Training(const Group& of, const Case& one, const std::string& policy, const std::string& fusion)
      : group(of), type(one.type) {
    net->to(type);
    optimisers = one.make(net->parameters());
    parallel.emplace(model_of(*net), std::move(optimisers.view), group,
                     DataParallelOptions{.policy = policy,
                                         .buckets = given(Fusion::parse(fusion)),
                                         .fp32_masters = type != torch::kFloat32,
                                         .ownership = one.ownership});
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t share = kRows / group.size();
      const auto batch =
          train::testing::rows(taken++, share * group.rank(), share, train::testing::kFeatures);
      torch::mse_loss(net->forward(batch.inputs.to(type)), batch.targets.to(type)).backward();
      parallel->step();
    }
    parallel->synchronize();
  }
  // Parameters, and all that the optimisers remember of them.
  Tensors everything() {
    Tensors all;
    for (const auto& [parameter, state] : parallel->optimizer_state()) {
      all.push_back(parameter.detach().clone());
      for (const auto& vector : state->vectors) all.push_back(vector.second.clone());
      const std::vector<std::uint8_t> scalars(state->scalars.begin(), state->scalars.end());
      all.push_back(torch::tensor(scalars, torch::dtype(torch::kUInt8)));
    }
    return all;
  }
  Group group;
  at::ScalarType type;
  torch::nn::Sequential net = train::testing::make_net();
  Optimisers optimisers;
  std::optional<DataParallel> parallel;
  std::int64_t taken = 0;
};

class Optimised : public ::testing::TestWithParam<std::tuple<Case, CheckpointForm>> {};
INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Optimised,
    ::testing::Combine(::testing::Values(Case{"OwnedWhole", adamw, Ownership::whole},
                                         Case{"MuonAndAdamW", muon_and_adamw, Ownership::automatic},
                                         Case{"SGDAndAdamW", sgd_and_adamw}, Case{"LAMB", lamb},
                                         Case{"Masters", adamw, Ownership::cut, torch::kBFloat16},
                                         Case{"OwnedMasters", muon_and_adamw, Ownership::automatic,
                                              torch::kBFloat16}),
                       ::testing::Values(CheckpointForm::one_file, CheckpointForm::a_shard_of_each_rank)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) +
             (std::get<1>(info.param) == CheckpointForm::one_file ? "InOneFile" : "InShards");
    });

TEST_P(Optimised, GoesOnToTheBitAndOnOtherRanks) {
  const auto& [one, form] = GetParam();
  const Folder folder;
  const CheckpointsOptions options{.directory = folder.path("saved"), .form = form};
  Tensors expected;
  run_all(4, [&, &one = one](int rank, Group group) {
    Training training(group, one, "dear", "64KiB");
    Checkpoints checkpoints(*training.parallel, options);
    training.steps(3);
    checkpoints.save({.step = 3});
    training.steps(3);
    Tensors all = training.everything();
    if (rank == 0) expected = std::move(all);
  });
  for (const auto& [ranks, policy, fusion] : {std::tuple(4, "dear", "64KiB"), std::tuple(4, "wfbp", "layer"),
                                              std::tuple(2, "dear", "all"), std::tuple(1, "dear", "64KiB")}) {
    run_all(ranks, [&, &one = one, ranks = ranks, policy = policy, fusion = fusion](int, Group group) {
      Training training(group, one, policy, fusion);
      training.taken = Checkpoints(*training.parallel, options).resume().value().step;
      EXPECT_EQ(training.taken, 3);
      training.steps(3);
      if (ranks == 4) {
        const Tensors found = training.everything();
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(torch::equal(found[i], expected[i])) << policy << ", tensor " << i;
      } else {
        const double tolerance = one.type == torch::kFloat32 ? 1e-3 : 3e-2;
        const Tensors found = training.net->parameters();
        Training other(group.duplicate(), one, policy, fusion);  // that began anew is another one
        other.steps(3);
        const double apart = (other.net->parameters()[0] - found[0]).abs().max().template item<double>();
        const double near = (found[0] - expected[0]).abs().max().template item<double>();
        EXPECT_LT(near, tolerance) << ranks;
        EXPECT_LT(near, apart) << ranks;
      }
    });
  }
}

}  // namespace
}  // namespace dear::optimisers_test
