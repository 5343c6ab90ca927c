#include "dear/systems/train_command/gpt.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/utils.h>

namespace dear::train_command::gpt_test {
namespace {

constexpr GptOptions kSmall{.vocabulary = 11, .context = 8, .layers = 2, .width = 12, .heads = 3, .seed = 5};

// int64 [batch, time], each character (7 i + 3) mod vocabulary.
torch::Tensor characters(std::int64_t batch, std::int64_t time, std::int64_t vocabulary = kSmall.vocabulary) {
  return torch::arange(batch * time).mul(7).add(3).remainder(vocabulary).view({batch, time});
}

std::vector<torch::Tensor> values_of(const Gpt& model) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& parameter : model->parameters()) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}

bool equal(const std::vector<torch::Tensor>& left, const std::vector<torch::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const auto& a, const auto& b) { return torch::equal(a, b); });
}

TEST(Gpt, GivesALogitForEachNextCharacter) {
  Gpt model(kSmall);
  EXPECT_EQ(model->forward(characters(3, 8)).sizes().vec(), (std::vector<std::int64_t>{3, 8, 11}));
  EXPECT_EQ(model->forward(characters(1, 1)).sizes().vec(), (std::vector<std::int64_t>{1, 1, 11}));
}

TEST(Gpt, IsWhatItsOperatorsComputeInARow) {
  Gpt model(kSmall);
  torch::Tensor x = characters(3, 8);
  const PipelineModel operators = model->as_operators();
  EXPECT_EQ(operators.operators().size(), 2U + 2 * kSmall.layers);
  for (const PipelineModel::Operator& one : operators.operators()) x = one.compute({x})[0];
  EXPECT_TRUE(torch::equal(x, model->forward(characters(3, 8))));
}

TEST(Gpt, RefusesMoreCharactersThanItsContext) {
  Gpt model(kSmall);
  EXPECT_THROW(model->forward(characters(1, 9)), c10::Error);
}

TEST(Gpt, ALaterCharacterNeverChangesAnEarlierLogit) {
  torch::NoGradGuard no_grad;
  Gpt model(kSmall);
  const torch::Tensor input = characters(1, 8);
  const torch::Tensor logits = model->forward(input);
  for (std::int64_t changed = 0; changed < 8; ++changed) {
    torch::Tensor other = input.clone();
    other[0][changed] = (other[0][changed].item<std::int64_t>() + 1) % kSmall.vocabulary;
    const torch::Tensor other_logits = model->forward(other);
    for (std::int64_t time = 0; time < 8; ++time) {
      EXPECT_EQ(torch::equal(logits[0][time], other_logits[0][time]), time < changed)
          << changed << ", " << time;
    }
  }
}

TEST(Gpt, SamplesOfABatchDoNotMeet) {
  torch::NoGradGuard no_grad;
  Gpt model(kSmall);
  const torch::Tensor input = characters(3, 8);
  const torch::Tensor together = model->forward(input);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::allclose(together[i], model->forward(input.slice(0, i, i + 1))[0], 1e-5, 1e-6));
  }
}

TEST(Gpt, ParameterCountFollowsTheFormula) {
  for (const GptOptions& options :
       {kSmall, GptOptions{},
        GptOptions{.vocabulary = 96, .context = 32, .layers = 1, .width = 48, .heads = 2}}) {
    Gpt model(options);
    std::int64_t elements = 0;
    for (const torch::Tensor& parameter : model->parameters()) {
      elements += parameter.numel();
    }
    EXPECT_EQ(elements, parameter_count(options));
  }
  // 12 w^2 + 13 w for a block, as in the literature.
  const GptOptions one{.vocabulary = 10, .context = 6, .layers = 1, .width = 20, .heads = 1};
  EXPECT_EQ(parameter_count(one), (10 + 6) * 20 + (12 * 400 + 13 * 20) + 2 * 20);
}

TEST(Gpt, AFreshModelKnowsNothing) {
  torch::NoGradGuard no_grad;
  const GptOptions options{.vocabulary = 97, .context = 64, .layers = 4, .width = 64, .heads = 4, .seed = 3};
  Gpt model(options);
  const torch::Tensor input = characters(4, 65, options.vocabulary);
  const double loss = cross_entropy(model->forward(input.slice(1, 0, 64)), input.slice(1, 1)).item<double>();
  EXPECT_NEAR(loss, std::log(97.0), 0.1);
}

TEST(Gpt, TheSeedAloneDecidesTheFirstParameters) {
  torch::manual_seed(1);
  const auto first = values_of(Gpt(kSmall));
  torch::manual_seed(2);
  const auto second = values_of(Gpt(kSmall));
  EXPECT_TRUE(equal(first, second));
  GptOptions other = kSmall;
  other.seed = 6;
  EXPECT_FALSE(equal(first, values_of(Gpt(other))));
}

TEST(Gpt, InitialDeviationsKeepVarianceThroughTheLayers) {
  const GptOptions options{.vocabulary = 64, .context = 32, .layers = 8, .width = 64, .heads = 4, .seed = 3};
  Gpt model(options);
  const auto parameters = model->named_parameters();
  EXPECT_NEAR(parameters["token_embedding.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["position_embedding.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["blocks.3.query_key_value.weight"].std().item<double>(), 1.0 / 8, 0.005);
  EXPECT_NEAR(parameters["blocks.3.attention_output.weight"].std().item<double>(), 1.0 / 8 / 4, 0.002);
  EXPECT_NEAR(parameters["blocks.3.mlp_output.weight"].std().item<double>(), 1.0 / 16 / 4, 0.001);
  EXPECT_EQ(parameters["blocks.0.mlp_norm.weight"].min().item<double>(), 1.0);
  EXPECT_EQ(parameters["blocks.0.mlp_input.bias"].abs().max().item<double>(), 0.0);
}

TEST(Gpt, OutputWeightsAreTheEmbedding) {
  Gpt model(kSmall);
  const auto parameters = model->named_parameters();
  for (const auto& item : parameters) {
    const auto sizes = item.value().sizes().vec();
    EXPECT_EQ(sizes == (std::vector<std::int64_t>{kSmall.vocabulary, kSmall.width}),
              item.key() == "token_embedding.weight");
  }
  // A character that was not read gets its gradient through the output alone.
  model->forward(torch::zeros({1, 4}, torch::kInt64)).select(-1, 7).sum().backward();
  EXPECT_GT(parameters["token_embedding.weight"].grad()[7].abs().max().item<double>(), 0.0);
}

TEST(Gpt, LearnsToCount) {
  const GptOptions options{.vocabulary = 5, .context = 8, .layers = 1, .width = 16, .heads = 2, .seed = 1};
  Gpt model(options);
  const torch::Tensor text = torch::arange(4 * 9).remainder(5).view({4, 9});
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    model->zero_grad();
    const torch::Tensor loss = cross_entropy(model->forward(text.slice(1, 0, 8)), text.slice(1, 1));
    loss.backward();
    torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model->parameters()) {
      parameter.sub_(parameter.grad(), 0.5);
    }
    last = loss.item<double>();
    first = step == 0 ? last : first;
  }
  EXPECT_LT(last, first / 4);
  EXPECT_EQ(generate(model, {0, 1, 2}, 6, 1), (std::vector<std::int64_t>{3, 4, 0, 1, 2, 3}));
}

TEST(Generate, TheSeedDecidesTheText) {
  Gpt model(kSmall);
  const auto text = generate(model, {1}, 40, 9);
  EXPECT_EQ(text.size(), 40U);
  EXPECT_EQ(text, generate(model, {1}, 40, 9));
  EXPECT_NE(text, generate(model, {1}, 40, 10));
  for (const std::int64_t character : text) {
    EXPECT_GE(character, 0);
    EXPECT_LT(character, kSmall.vocabulary);
  }
}

TEST(Generate, OnlyTheContextCounts) {
  Gpt model(kSmall);
  const std::vector<std::int64_t> context = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::int64_t> longer = {9, 10, 0};
  longer.insert(longer.end(), context.begin(), context.end());
  EXPECT_EQ(generate(model, context, 10, 2), generate(model, longer, 10, 2));
  EXPECT_TRUE(generate(model, context, 0, 2).empty());
}

}  // namespace
}  // namespace dear::train_command::gpt_test
