#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/systems/moe/mixture.h"
#include "dear/train/data_parallel/testing/ranks.h"

// Forward and backward passes of one mixture on ranks that are threads.
namespace dear::systems::moe::testing {

inline constexpr std::int64_t kWidth = 8, kHidden = 12, kExperts = 8, kSamples = 4, kTokens = 9;

// How tokens choose: by weights as they are drawn; mostly few experts; one alone.
enum class Routing : std::uint8_t { drawn, uneven, one };

struct Case {
  std::string gate = "switch";
  double capacity_factor = 1.25;
  Routing routing = Routing::drawn;
  int parts = 1;
  ExpertOverlap overlap = ExpertOverlap::none;
  [[nodiscard]] std::string text() const {
    return gate + ", " + std::to_string(capacity_factor) + ", routing " +
           std::to_string(static_cast<int>(routing)) + ", " + std::to_string(parts) + " parts, overlap " +
           std::to_string(static_cast<int>(overlap));
  }
};

inline MixtureOptions options_of(const Case& one) {
  return {.width = kWidth,
          .hidden = kHidden,
          .experts = kExperts,
          .gate = one.gate,
          .capacity_factor = one.capacity_factor,
          .parts = one.parts,
          .overlap = one.overlap,
          .seed = 5};
}

// [samples, tokens, width], the last feature 1, of a rank.
inline torch::Tensor input_of(int rank) {
  const auto count = kSamples * kTokens * kWidth;
  torch::Tensor x = torch::sin(torch::arange(count, torch::kFloat32) * (1.7 + 0.31 * rank) + rank);
  x = x.view({kSamples, kTokens, kWidth});
  x.select(2, kWidth - 1).fill_(1);
  return x;
}
inline torch::Tensor target_of(int rank) {
  return torch::cos(torch::arange(kSamples * kTokens * kWidth, torch::kFloat32) * 0.83 + rank)
      .view({kSamples, kTokens, kWidth});
}
inline void route(const torch::Tensor& gate, Routing routing) {
  const torch::NoGradGuard no_grad;
  torch::Tensor of_ones = gate.select(1, kWidth - 1);
  if (routing == Routing::uneven) of_ones.copy_(torch::arange(kExperts, torch::kFloat32) * -0.25);
  if (routing == Routing::one) of_ones.copy_(torch::arange(kExperts, torch::kFloat32) == 5).mul_(20);
}

// What one rank finds.
struct Found {
  torch::Tensor output, of_x, of_gate, of_inputs, of_outputs, inputs, outputs, gate;
  MixtureStatistics statistics;
};

inline Found pass(Mixture& mixture, int rank) {
  torch::Tensor x = input_of(rank).requires_grad_();
  const torch::Tensor y = mixture(x);
  ((y * target_of(rank)).sum() + 0.5 * mixture->balance_loss()).backward();
  const auto parameters = mixture->named_parameters();
  return {.output = y.detach(),
          .of_x = x.grad(),
          .of_gate = parameters["gate"].grad(),
          .of_inputs = parameters["inputs"].grad(),
          .of_outputs = parameters["outputs"].grad(),
          .inputs = parameters["inputs"].detach(),
          .outputs = parameters["outputs"].detach(),
          .gate = parameters["gate"].detach(),
          .statistics = mixture->statistics()};
}

inline std::vector<Found> passed(int ranks, const Case& one) {
  std::vector<Found> found(static_cast<std::size_t>(ranks));
  train::testing::run_all(ranks, [&](int rank, const Group& group) {
    Mixture mixture(options_of(one), std::make_shared<ExpertGroup>(group));
    route(mixture->named_parameters()["gate"], one.routing);
    found[static_cast<std::size_t>(rank)] = pass(mixture, rank);
  });
  return found;
}

}  // namespace dear::systems::moe::testing
