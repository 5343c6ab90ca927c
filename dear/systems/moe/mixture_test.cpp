// A mixture of experts computes what its definition says, on any number of ranks, and neither parts nor
// overlap change a bit.

#include "dear/systems/moe/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/moe/testing/passed.h"

namespace dear::systems::moe::mixture_test {
namespace {

using testing::Case;
using testing::Found;
using testing::input_of;
using testing::kExperts;
using testing::kSamples;
using testing::kTokens;
using testing::kWidth;
using testing::passed;
using testing::Routing;
using testing::target_of;

const std::vector<std::string> kGates{"switch", "top2", "batch-prioritized"};

void expect_same_bits(const Found& a, const Found& b) {
  EXPECT_TRUE(torch::equal(a.output, b.output));
  EXPECT_TRUE(torch::equal(a.of_x, b.of_x));
  EXPECT_TRUE(torch::equal(a.of_gate, b.of_gate));
  EXPECT_TRUE(torch::equal(a.of_inputs, b.of_inputs));
  EXPECT_TRUE(torch::equal(a.of_outputs, b.of_outputs));
  EXPECT_EQ(a.statistics.by_expert, b.statistics.by_expert);
  EXPECT_EQ(a.statistics.dropped, b.statistics.dropped);
}

class Gates : public ::testing::TestWithParam<std::string> {};

TEST_P(Gates, GiveTheSameBitsWithPartsAndOverlaps) {
  for (const double factor : {0.5, 1.25, 8.0})
    for (const Routing routing : {Routing::drawn, Routing::uneven, Routing::one}) {
      const Case whole{.gate = GetParam(), .capacity_factor = factor, .routing = routing};
      const std::vector<Found> expected = passed(2, whole);
      if (factor < 1 || routing == Routing::one) {
        EXPECT_GT(expected[0].statistics.dropped, factor < 8 ? 0 : -1);
      }
      for (const int parts : {1, 2, 4})
        for (const ExpertOverlap overlap :
             {ExpertOverlap::none, ExpertOverlap::experts, ExpertOverlap::lancet}) {
          if (overlap == ExpertOverlap::experts && parts != 2) continue;
          Case one = whole;
          one.parts = parts;
          one.overlap = overlap;
          SCOPED_TRACE(one.text());
          const std::vector<Found> found = passed(2, one);
          for (std::size_t rank = 0; rank < 2; ++rank) expect_same_bits(found[rank], expected[rank]);
        }
    }
}

// The places that a naive cut gives: each part has a share of the capacity.
TEST_P(Gates, DropOtherTokensWhereABatchIsCutNaively) {
  torch::Tensor whole, naive;
  for (const bool cut : {false, true})
    train::testing::run_all(1, [&](int rank, const Group& group) {
      Mixture mixture(testing::options_of({.gate = GetParam(), .capacity_factor = 0.8}),
                      std::make_shared<ExpertGroup>(group));
      testing::route(mixture->named_parameters()["gate"], Routing::uneven);
      const torch::NoGradGuard no_grad;
      const torch::Tensor x = input_of(rank);
      std::vector<torch::Tensor> results;
      for (const torch::Tensor& part : x.split(cut ? kSamples / 2 : kSamples))
        results.push_back(mixture->forward(part));
      (cut ? naive : whole) = torch::cat(results);
    });
  EXPECT_FALSE(torch::equal(whole, naive));
}

// The definition, token by token, in fp64 and on one process: all experts are here.
struct Oracle {
  torch::Tensor gate, inputs, outputs;

  // Which experts a rank's tokens visit, in the order of choice; kept ones alone have a place.
  struct Choice {
    std::int64_t token, expert;
    torch::Tensor weight;
  };
  [[nodiscard]] torch::Tensor output(const Case& one, const torch::Tensor& x, torch::Tensor& balance) const {
    const auto tokens = x.size(0);
    const torch::Tensor probabilities = torch::softmax(x.mm(gate.t()), 1);
    const auto capacity = static_cast<std::int64_t>(
        one.capacity_factor * std::ceil(static_cast<double>(tokens) / static_cast<double>(kExperts)));
    const std::int64_t choices = one.gate == "top2" ? 2 : 1;
    const auto [largest, experts] = probabilities.topk(choices, 1);
    std::vector<std::int64_t> order(static_cast<std::size_t>(tokens));
    std::iota(order.begin(), order.end(), 0);
    if (one.gate == "batch-prioritized")
      std::stable_sort(order.begin(), order.end(), [&, &largest = largest](std::int64_t a, std::int64_t b) {
        return largest[a][0].item<double>() > largest[b][0].item<double>();
      });
    std::vector<std::int64_t> taken(kExperts), chosen(kExperts);
    std::vector<torch::Tensor> rows(static_cast<std::size_t>(tokens));
    for (const std::int64_t token : order) {
      torch::Tensor row = torch::zeros({kWidth}, x.options());
      for (std::int64_t c = 0; c < choices; ++c) {
        const auto expert = experts[token][c].item<std::int64_t>();
        ++chosen[static_cast<std::size_t>(expert)];
        if (taken[static_cast<std::size_t>(expert)] == capacity) continue;
        ++taken[static_cast<std::size_t>(expert)];
        const torch::Tensor weight =
            choices == 1 ? largest[token][0] : largest[token][c] / (largest[token][0] + largest[token][1]);
        row = row + weight * outputs[expert].mv(torch::gelu(inputs[expert].mv(x[token])));
      }
      rows[static_cast<std::size_t>(token)] = row;
    }
    balance = torch::zeros({}, x.options());
    for (std::int64_t expert = 0; expert < kExperts; ++expert)
      balance = balance + probabilities.select(1, expert).mean() *
                              (static_cast<double>(chosen[static_cast<std::size_t>(expert)]) /
                               static_cast<double>(tokens * choices));
    balance = balance * static_cast<double>(kExperts);
    return torch::stack(rows);
  }
};

void expect_near(const torch::Tensor& found, const torch::Tensor& expected) {
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE((found.to(torch::kFloat64) - expected).abs().max().item<double>(), 1e-6 * scale);
}

TEST_P(Gates, ComputeWhatTheDefinitionSaysOnAnyRanks) {
  for (const int ranks : {1, 2, 4})
    for (const double factor : {0.6, 1.25})
      for (const Routing routing : {Routing::drawn, Routing::uneven}) {
        const Case one{.gate = GetParam(),
                       .capacity_factor = factor,
                       .routing = routing,
                       .parts = 2,
                       .overlap = ExpertOverlap::lancet};
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + one.text());
        const std::vector<Found> found = passed(ranks, one);
        std::vector<torch::Tensor> inputs, outputs;
        for (const Found& of_rank : found) {
          inputs.push_back(of_rank.inputs.to(torch::kFloat64));
          outputs.push_back(of_rank.outputs.to(torch::kFloat64));
        }
        const torch::Tensor all_inputs = torch::cat(inputs).requires_grad_();
        const torch::Tensor all_outputs = torch::cat(outputs).requires_grad_();
        for (int rank = 0; rank < ranks; ++rank) {
          const Found& of_rank = found[static_cast<std::size_t>(rank)];
          const torch::Tensor gate = of_rank.gate.to(torch::kFloat64).requires_grad_();
          const torch::Tensor x = input_of(rank).to(torch::kFloat64).view({-1, kWidth}).requires_grad_();
          torch::Tensor balance;
          const torch::Tensor y =
              Oracle{.gate = gate, .inputs = all_inputs, .outputs = all_outputs}.output(one, x, balance);
          ((y.view({kSamples, kTokens, kWidth}) * target_of(rank).to(torch::kFloat64)).sum() + 0.5 * balance)
              .backward();
          expect_near(of_rank.output.view({-1, kWidth}), y.detach());
          expect_near(of_rank.of_x.view({-1, kWidth}), x.grad());
          expect_near(of_rank.of_gate, gate.grad());
        }
        // Experts learn from the mean of the ranks' losses.
        std::vector<torch::Tensor> of_inputs, of_outputs;
        for (const Found& of_rank : found) {
          of_inputs.push_back(of_rank.of_inputs);
          of_outputs.push_back(of_rank.of_outputs);
        }
        expect_near(torch::cat(of_inputs), all_inputs.grad() / ranks);
        expect_near(torch::cat(of_outputs), all_outputs.grad() / ranks);
      }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Gates, ::testing::ValuesIn(kGates), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(Mixture, BeginsWithTheExpertsThatOneProcessWouldHave) {
  const torch::Tensor alone = passed(1, {})[0].inputs;
  const std::vector<Found> found = passed(4, {});
  std::vector<torch::Tensor> parts;
  for (const Found& one : found) parts.push_back(one.inputs);
  EXPECT_TRUE(torch::equal(torch::cat(parts), alone));
}

TEST(Mixture, ComputesTheSameAgainWhenABackwardPassIsRepeatedOrBrokenOff) {
  train::testing::run_all(2, [](int rank, const Group& group) {
    Mixture mixture(testing::options_of({.parts = 2, .overlap = ExpertOverlap::lancet}),
                    std::make_shared<ExpertGroup>(group));
    const torch::Tensor loss = (mixture(input_of(rank)) * target_of(rank)).sum();
    const torch::Tensor inputs = mixture->named_parameters()["inputs"];
    loss.backward({}, /*retain_graph=*/true);
    const torch::Tensor first = inputs.grad().clone();
    loss.backward();
    EXPECT_TRUE(torch::equal(inputs.grad(), first + first));
  });
}

TEST(Mixture, RefusesSecondDerivatives) {
  train::testing::run_all(1, [](int rank, const Group& group) {
    Mixture mixture(testing::options_of({}), std::make_shared<ExpertGroup>(group));
    const torch::Tensor loss = mixture(input_of(rank)).sum();
    EXPECT_THAT([&] { loss.backward({}, std::nullopt, /*create_graph=*/true); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("second derivatives")));
  });
}

TEST(Mixture, IsLeftOutOfTheDenseModelAndWholeInTheWholeOne) {
  train::testing::run_all(2, [](int /*rank*/, const Group& group) {
    Mixture mixture(testing::options_of({}), std::make_shared<ExpertGroup>(group));
    const Model dense = dense_model_of(*mixture);
    ASSERT_EQ(dense.parameters.size(), 1);
    EXPECT_EQ(dense.parameters[0].name, "gate");
    const Model whole = whole_model_of(*mixture);
    ASSERT_EQ(whole.parameters.size(), 3);
    EXPECT_EQ(whole.parameters[1].tensor.size(0), kExperts);
    agree(group, "whole model", parameter_digest(whole));
  });
}

}  // namespace
}  // namespace dear::systems::moe::mixture_test
