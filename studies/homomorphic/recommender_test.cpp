#include "studies/homomorphic/recommender.h"

#include "studies/homomorphic/learning.h"
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::homomorphic::recommender_test {
namespace {

constexpr RecommenderShape kSmall{.users = 12, .items = 9, .width = 3, .first = 7, .second = 5};

// Along random directions in each tensor, by central differences.
TEST(Recommender, HasTheGradientOfItsLoss) {
  const Opinions opinions(kSmall, 3);
  Ratings ratings;
  opinions.draw(0, 0, 40, ratings);
  Recommender recommender(kSmall);
  std::vector<float> parameters = initial_parameters(kSmall, 3);
  codec::Draw random(1, 0, 0);
  for (float& value : parameters) value += 0.2F * random.uniform();
  std::vector<float> gradient(parameters.size());
  EXPECT_DOUBLE_EQ(recommender.loss_and_gradient(parameters, ratings, gradient),
                   recommender.loss(parameters, ratings));
  for (const Range& tensor : kSmall.tensors()) {
    for (int direction = 0; direction < 5; ++direction) {
      std::vector<float> forward = parameters, backward = parameters;
      double expected = 0, norm = 0;
      for (auto i = static_cast<std::size_t>(tensor.begin); i < static_cast<std::size_t>(tensor.end); ++i) {
        const float step = random.uniform() / 256;
        forward[i] += step;
        backward[i] -= step;
        const double part = 2 * static_cast<double>(step) * static_cast<double>(gradient[i]);
        expected += part;
        norm += std::abs(part);
      }
      const double difference = recommender.loss(forward, ratings) - recommender.loss(backward, ratings);
      EXPECT_GT(norm, 0);
      EXPECT_NEAR(difference, expected, 0.01 * norm + 1e-6) << "tensor at " << tensor.begin;
    }
  }
}

TEST(Recommender, HasNoGradientForWhoGaveNoRating) {
  const Ratings ratings{.users = {2, 2, 5}, .items = {0, 8, 8}, .liked = {1, 0, 1}};
  std::vector<float> gradient(static_cast<std::size_t>(kSmall.parameters()), 9);
  Recommender(kSmall).loss_and_gradient(initial_parameters(kSmall, 1), ratings, gradient);
  for (int user = 0; user < kSmall.users; ++user) {
    const auto begin = gradient.begin() + user * kSmall.width;
    const bool zero = std::all_of(begin, begin + kSmall.width, [](float value) { return value == 0; });
    EXPECT_EQ(zero, user != 2 && user != 5) << user;
  }
}

TEST(Opinions, AreThoseOfTheirSeedAndFollowZipfsLaw) {
  const RecommenderShape shape;
  const Opinions opinions(shape, 1), same(shape, 1), others(shape, 2);
  Ratings one, two, three;
  opinions.draw(4, 1, 20'000, one);
  same.draw(4, 1, 20'000, two);
  EXPECT_EQ(one.users, two.users);
  EXPECT_EQ(one.liked, two.liked);
  others.draw(4, 1, 20'000, three);
  EXPECT_NE(one.liked, three.liked);
  opinions.draw(5, 1, 20'000, three);
  EXPECT_NE(one.users, three.users);
  const auto most = std::minmax_element(one.users.begin(), one.users.end());
  EXPECT_EQ(*most.first, 0);
  EXPECT_LT(*most.second, shape.users);
  // The first user is drawn with probability log 2 / log 4001.
  const auto of_first = std::count(one.users.begin(), one.users.end(), 0);
  EXPECT_NEAR(static_cast<double>(of_first) / 20'000, std::log(2) / std::log(4001), 0.01);
  const auto liked = std::count(one.liked.begin(), one.liked.end(), 1.0F);
  EXPECT_GT(liked, 4000);
  EXPECT_LT(liked, 16'000);
}

TEST(Learning, OfASketchIsThatOfDense) {
  const LearningOptions options{
      .model = kSmall, .batch = 8, .steps = 60, .seeds = 1, .held_back = 500, .learning_rates = {1}};
  const Learned dense = learn(options, {}, 1, 1);
  EXPECT_LT(dense.test, learn(options, {}, 0, 1).test);
  EXPECT_EQ(dense.losses.size(), 60U);
  for (const char* const text : {"sketch,most-density=1", "sketch,exact,most-density=1"}) {
    const Learned sketch = learn(options, Compression::parse(text), 1, 1);
    EXPECT_LE(apart(dense, sketch, 60), 1e-4) << text;
    EXPECT_NEAR(dense.test, sketch.test, 1e-4) << text;
  }
  EXPECT_TRUE(std::isinf(apart(dense, dense, 61)));
}

TEST(Learning, SaysThatItDiverged) {
  const LearningOptions options{.model = kSmall, .batch = 8, .steps = 30, .seeds = 1, .held_back = 100};
  const Learned diverged = learn(options, Compression::parse("top-k:0.1,ef"), 1e30, 1);
  EXPECT_TRUE(diverged.diverged);
  EXPECT_TRUE(std::isinf(diverged.test));
}

TEST(Learning, ChoosesTheRateOfLowestValidation) {
  const LearningOptions options{
      .model = kSmall, .batch = 8, .steps = 40, .seeds = 2, .held_back = 500, .learning_rates = {1e-6, 1}};
  const std::vector<MethodLearned> found = search_learning_rates({std::nullopt}, options);
  EXPECT_EQ(found.front().best, 1U);
  EXPECT_GT(found.front().at_best().deviation(), 0);
  EXPECT_EQ(found.front().at_best().by_seed[1].losses, learn(options, {}, 1, 2).losses);
}

}  // namespace
}  // namespace dear::studies::homomorphic::recommender_test
