#include "dear/train/autograd/layer_clock.h"

#include <gtest/gtest.h>

namespace dear::autograd::layer_clock_test {
namespace {

TEST(LayerClock, MeasuresForwardToTheNextLayerAndBackwardToTheLastGradient) {
  LayerClock clock;
  clock.forward_began(0, 1.0);
  EXPECT_EQ(clock.running(), LayerId{0});
  clock.forward_ended(2.0);  // layer 1 begins, and waits for its parameters
  clock.forward_began(1, 2.5);
  clock.backward_began(4.0);
  EXPECT_TRUE(clock.in_backward());
  clock.gradients_there(1, 6.0);
  clock.gradients_there(0, 7.0);
  clock.backward_ended();
  EXPECT_FALSE(clock.in_backward());
  clock.next_iteration(8.0);
  clock.forward_began(0, 9.0);
  clock.next_iteration(9.5);

  const auto& spans = clock.spans();
  ASSERT_EQ(spans.size(), 5U);
  const auto expect = [&](std::size_t i, bool backward, LayerId layer, std::int64_t iteration, double begin,
                          double end) {
    EXPECT_EQ(spans[i].backward, backward) << i;
    EXPECT_EQ(spans[i].layer, layer) << i;
    EXPECT_EQ(spans[i].iteration, iteration) << i;
    EXPECT_EQ(spans[i].begin_seconds, begin) << i;
    EXPECT_EQ(spans[i].end_seconds, end) << i;
  };
  expect(0, false, 0, 0, 1.0, 2.0);
  expect(1, false, 1, 0, 2.5, 4.0);
  expect(2, true, 1, 0, 4.0, 6.0);
  expect(3, true, 0, 0, 6.0, 7.0);
  expect(4, false, 0, 1, 9.0, 9.5);
}

TEST(ShareOfPass, AddsUpToTheMedianOfWholePasses) {
  // Each iteration one of three layers is interrupted for 3 s: 3 + 3 s a pass, 3 s by the layers' medians.
  const std::map<LayerId, ByIteration> seconds = {{0, {{1, 4.0}, {2, 1.0}, {3, 1.0}}},
                                                  {1, {{1, 0.5}, {2, 3.5}, {3, 0.5}}},
                                                  {2, {{1, 1.5}, {2, 1.5}, {3, 4.5}}}};
  EXPECT_EQ(share_of_pass(seconds), (std::map<LayerId, double>{{0, 2.0}, {1, 1.0}, {2, 3.0}}));
}

TEST(ShareOfPass, KnowsLayersThatTookNoTimeOrWereNotThere) {
  EXPECT_TRUE(share_of_pass({}).empty());
  EXPECT_EQ(share_of_pass({{0, {{1, 0.0}}}, {1, {{1, 0.0}}}}), (std::map<LayerId, double>{{0, 0}, {1, 0}}));
}

}  // namespace
}  // namespace dear::autograd::layer_clock_test
