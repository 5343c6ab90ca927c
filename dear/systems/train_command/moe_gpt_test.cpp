#include "dear/systems/train_command/moe_gpt.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "dear/systems/moe/order.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::train_command::moe_gpt_test {
namespace {

using train::testing::run_all;

MoeGptOptions options_of(const std::string& gate, ExpertOverlap overlap, int parts, double capacity_factor) {
  return {.gpt = {.vocabulary = 11, .context = 9, .layers = 4, .width = 12, .heads = 3, .seed = 5},
          .mixture = {.experts = 4,
                      .gate = gate,
                      .capacity_factor = capacity_factor,
                      .parts = parts,
                      .overlap = overlap},
          .mixture_every = 2};
}

// int64 [4, 10] of a rank.
torch::Tensor characters(int rank) {
  return torch::arange(40).add(40 * rank).square().mul(7).add(3).remainder(11).view({4, 10});
}

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// Logits and all gradients of a pass, by rank.
std::vector<Named> passed(int ranks, const MoeGptOptions& options) {
  std::vector<Named> found(static_cast<std::size_t>(ranks));
  run_all(ranks, [&](int rank, const Group& group) {
    MoeGpt model(options, std::make_shared<ExpertGroup>(group));
    const torch::Tensor batch = ranks == 1 ? torch::cat({characters(0), characters(1)}) : characters(rank);
    const torch::Tensor logits = model->forward(batch.slice(1, 0, 9));
    (cross_entropy(logits, batch.slice(1, 1)) + (ranks > 1 ? 0.01 : 0.0) * model->balance_loss()).backward();
    Named& named = found[static_cast<std::size_t>(rank)];
    named.emplace_back("logits", logits.detach());
    for (const auto& one : model->named_parameters()) named.emplace_back(one.key(), one.value().grad());
  });
  return found;
}

class Gates : public ::testing::TestWithParam<std::string> {};

TEST_P(Gates, GiveTheSameBitsHoweverTheStackIsCut) {
  const std::vector<Named> expected = passed(2, options_of(GetParam(), ExpertOverlap::none, 1, 0.7));
  for (const ExpertOverlap overlap : {ExpertOverlap::none, ExpertOverlap::experts, ExpertOverlap::lancet})
    for (const int parts : {1, 2, 4}) {
      const std::vector<Named> found = passed(2, options_of(GetParam(), overlap, parts, 0.7));
      for (std::size_t rank = 0; rank < 2; ++rank)
        for (std::size_t i = 0; i < expected[rank].size(); ++i)
          EXPECT_TRUE(torch::equal(found[rank][i].second, expected[rank][i].second))
              << expected[rank][i].first << ", rank " << rank << ", " << parts << " parts, overlap "
              << static_cast<int>(overlap);
    }
}

INSTANTIATE_TEST_SUITE_P(MoeGpt, Gates, ::testing::Values("switch", "top2", "batch-prioritized"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(MoeGpt, OnTwoRanksIsOneProcessOnBothBatches) {
  // Nothing is dropped, and the balance loss, which is no mean over ranks, does not count.
  MoeGptOptions options = options_of("top2", ExpertOverlap::lancet, 2, 4);
  std::vector<Named> expected = passed(1, options);
  std::vector<Named> found(2);
  run_all(2, [&](int rank, const Group& group) {
    MoeGpt model(options, std::make_shared<ExpertGroup>(group));
    const torch::Tensor batch = characters(rank);
    cross_entropy(model->forward(batch.slice(1, 0, 9)), batch.slice(1, 1)).backward();
    for (const auto& one : model->named_parameters())
      found[static_cast<std::size_t>(rank)].emplace_back(one.key(), one.value().grad());
  });
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    const auto& [name, whole] = expected[0][i + 1];
    const torch::Tensor first = found[0][i].second, second = found[1][i].second;
    const bool of_experts = first.dim() == 3;
    const torch::Tensor both = of_experts ? torch::cat({first, second}) : (first + second) / 2;
    EXPECT_TRUE(torch::allclose(both, whole, 1e-5, 1e-7)) << name;
  }
}

TEST(MoeGpt, WorksOnAPartWhileOthersTravel) {
  const auto order = [](ExpertOverlap overlap, const char* gate) {
    std::string text;
    run_all(2, [&](int rank, const Group& group) {
      MoeGpt model(options_of(gate, overlap, 2, 1.25), std::make_shared<ExpertGroup>(group));
      const systems::moe::OrderLog log;
      const torch::NoGradGuard no_grad;
      model->forward(characters(rank).slice(1, 0, 9));
      if (rank == 0)
        for (const std::string& entry : log.entries) text += entry.front();
    });
    return text;
  };
  // Of each mixture tokens of both parts are launched, then of each part they are waited for and its results
  // launched; with Lancet's cut the second mixture launches tokens of a part between waits for results of the
  // first.
  EXPECT_EQ(order(ExpertOverlap::experts, "switch"),
            "llwlwlww"
            "llwlwlww");
  EXPECT_EQ(order(ExpertOverlap::lancet, "switch"),
            "llwlwl"
            "wlwl"
            "wlwl"
            "ww");
  // A gate that sees the whole batch launches nothing before all parts are there.
  EXPECT_EQ(order(ExpertOverlap::lancet, "batch-prioritized"),
            "llwlwl"
            "wwll"
            "wlwl"
            "ww");
}

TEST(MoeGpt, CountsItsParameters) {
  const MoeGptOptions options = options_of("switch", ExpertOverlap::none, 1, 1.25);
  run_all(1, [&](int /*rank*/, const Group& group) {
    std::int64_t count = 0;
    for (const torch::Tensor& one : MoeGpt(options, std::make_shared<ExpertGroup>(group))->parameters())
      count += one.numel();
    EXPECT_EQ(count, parameter_count(options));
  });
}

}  // namespace
}  // namespace dear::train_command::moe_gpt_test
