// The order in which nodes of the backward pass run, from their own log.

#include "dear/systems/moe/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/systems/moe/testing/passed.h"
#include "dear/systems/moe/weights.h"

namespace dear::systems::moe::order_test {
namespace {

using ::testing::ElementsAre;
using testing::kWidth;

// Two layers below a mixture and one above it, all with nodes of their own: what the log of rank 0 has.
std::vector<std::string> order(int parts, ExpertOverlap overlap) {
  std::vector<std::string> found;
  train::testing::run_all(2, [&](int rank, const Group& group) {
    Mixture mixture(testing::options_of({.parts = parts, .overlap = overlap}),
                    std::make_shared<ExpertGroup>(group));
    const When when = overlap == ExpertOverlap::lancet ? When::late : When::at_once;
    std::vector<torch::Tensor> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(torch::eye(kWidth).requires_grad_());
    torch::Tensor x = testing::input_of(rank).requires_grad_();
    for (int i = 0; i < 2; ++i) x = LinearInParts(weights[static_cast<std::size_t>(i)], {}, when)(0, x);
    const torch::Tensor y = LinearInParts(weights[2], {}, when)(0, mixture(x));
    OrderLog log;
    (y * testing::target_of(rank)).sum().backward();
    if (rank == 0) found = log.entries;
  });
  return found;
}

TEST(Order, IsThatOfPlainAutogradWithoutOverlap) {
  for (const ExpertOverlap overlap : {ExpertOverlap::none, ExpertOverlap::experts})
    EXPECT_THAT(order(1, overlap), ElementsAre("weight", "launch", "wait", "weight", "weight", "launch",
                                               "wait", "weight", "weight", "weight"));
}

TEST(Order, ComputesAllWeightGradientsThatAreReadyBeforeAWait) {
  // The layer above and the gate go under the first all-to-all, the experts under the second.
  EXPECT_THAT(order(1, ExpertOverlap::lancet), ElementsAre("launch", "weight", "weight", "wait", "launch",
                                                           "weight", "weight", "wait", "weight", "weight"));
}

TEST(Order, LaunchesOtherPartsBeforeItWaits) {
  EXPECT_THAT(order(2, ExpertOverlap::lancet),
              ElementsAre("launch", "launch", "weight", "weight", "wait", "launch", "wait", "launch",
                          "weight", "weight", "wait", "wait", "weight", "weight"));
}

}  // namespace
}  // namespace dear::systems::moe::order_test
