#include "studies/rounds/replicas.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::rounds::replicas_test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

using Replicas = std::vector<std::vector<float>>;

SitesOptions small_sites() {
  return {.language = {.words = 20},
          .model = {.context = 3, .embedding = 4, .hidden = 16},
          .characters = 4000,
          .held_back = 512,
          .steps = 96,
          .batch = 8,
          .learning_rate = 0.02,
          .looks = 4};
}

TEST(CharactersOfRounds, GradientsAreDifferencesOfTheLoss) {
  const CharacterShape shape{.context = 3, .embedding = 4, .hidden = 8};
  CharacterModel model(shape);
  const Text text = draw_text({.words = 20}, {.seed = 3, .site = 0}, 100);
  const std::vector<std::size_t> places{3, 10, 50, 99};
  std::vector<float> parameters = model.initial_parameters(1);
  ASSERT_EQ(std::ssize(parameters), 27 * 4 + 12 * 8 + 8 + 8 * 27 + 27);
  std::vector<float> gradient(parameters.size());
  EXPECT_EQ(model.learn(parameters, text, places, gradient), model.loss(parameters, text, places));
  constexpr float kStep = 1e-3F;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float here = parameters[i];
    parameters[i] = here + kStep;
    const double above = model.loss(parameters, text, places);
    parameters[i] = here - kStep;
    const double below = model.loss(parameters, text, places);
    parameters[i] = here;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 2e-3) << i;
  }
}

std::set<std::string> frequent_words(const Text& text) {
  std::vector<std::string> words(1);
  for (const std::uint8_t character : text) {
    if (character == 0)
      words.emplace_back();
    else
      words.back() += static_cast<char>('a' + character - 1);
  }
  std::set<std::string> frequent;
  for (const std::string& word : words)
    if (std::count(words.begin(), words.end(), word) > std::ssize(words) / 20) frequent.insert(word);
  return frequent;
}

TEST(CharactersOfRounds, TextsHaveTheWordsOfTheirSite) {
  const LanguageShape shape{.words = 40};
  const auto text = [&](int site, bool apart) {
    return draw_text(shape, {.seed = 2, .site = site, .apart = apart}, 20'000);
  };
  EXPECT_THAT(text(0, false), Each(::testing::Lt(27)));
  EXPECT_EQ(text(0, false), text(0, false));
  EXPECT_NE(text(0, false), text(1, false));
  EXPECT_EQ(frequent_words(text(0, false)), frequent_words(text(1, false)));
  EXPECT_NE(frequent_words(text(0, true)), frequent_words(text(1, true)));
}

// Of a constant change of 1 a round, from 0: lr (1 + mu (1 - mu^r) / (1 - mu)) in round r.
TEST(OuterStepsOfRounds, AreThoseOfNesterovByPencil) {
  OuterSteps outer({.every = 1}, {0});
  std::vector<float> global;
  for (int round = 1; round <= 3; ++round) {
    Replicas replicas(2, {outer.global()[0] - 1});
    outer.after(round, replicas);
    global.push_back(outer.global()[0]);
    EXPECT_THAT(replicas, Each(std::vector<float>{global.back()}));
  }
  EXPECT_THAT(global, Pointwise(FloatNear(1e-5F), {-1.33F, -3.227F, -5.6343F}));
}

TEST(OuterStepsOfRounds, PlainMeansAreTheAverage) {
  OuterSteps outer(local_sgd(2), {1, 2});
  Replicas replicas{{3, 4}, {5, 8}};
  EXPECT_EQ(outer.after(1, replicas), 0);
  EXPECT_EQ(replicas[0], (std::vector<float>{3, 4})) << "not its turn";
  EXPECT_EQ(outer.after(2, replicas), 8) << "2 (k - 1) / k of 8 bytes";
  EXPECT_THAT(replicas, Each(std::vector<float>{4, 6}));
  EXPECT_EQ(outer.finish(replicas), 0) << "nothing is left";
}

// Each of 4 steps adds 1; turns are every 4 steps, and come in 2 steps later.
TEST(OuterStepsOfRounds, ADelayThrowsAwayTheStepsMeanwhileUnlessTheyAreMixed) {
  for (const float mixing : {0.0F, 0.5F, 1.0F}) {
    OuterSteps outer({.every = 4, .delay = 2, .mixing = mixing, .rate = 1, .momentum = 0}, {0});
    Replicas replicas(3, {0});
    for (int step = 1; step <= 6; ++step) {
      for (std::vector<float>& replica : replicas) replica[0] += 1;
      EXPECT_EQ(outer.after(step, replicas) > 0, step == 4) << step;
    }
    EXPECT_EQ(outer.global()[0], 4) << "what was sent";
    EXPECT_THAT(replicas, Each(std::vector<float>{mixing * 6 + (1 - mixing) * 4}));
    outer.finish(replicas);
    EXPECT_EQ(outer.global()[0], replicas[0][0]) << "the last steps count";
  }
}

TEST(OuterStepsOfRounds, FragmentsTakeTurnsAndSendTheModelOnceARound) {
  OuterSteps outer({.every = 6, .fragments = 3, .rate = 1, .momentum = 0}, std::vector<float>(9));
  Replicas replicas(2, std::vector<float>(9));
  double sent = 0;
  for (int step = 1; step <= 12; ++step) {
    for (std::vector<float>& replica : replicas)
      for (float& value : replica) value += 1;
    const double now = outer.after(step, replicas);
    EXPECT_EQ(now, step % 2 == 0 ? 12 : 0) << step;
    sent += now;
    if (step == 4) {
      EXPECT_EQ(outer.global()[0], 2);
      EXPECT_EQ(outer.global()[4], 4);
      EXPECT_EQ(outer.global()[8], 0);
    }
  }
  EXPECT_EQ(sent, 2 * 36);
  EXPECT_EQ(outer.finish(replicas), 24) << "two fragments have steps that were not sent";
  EXPECT_THAT(std::vector<float>(outer.global().begin(), outer.global().end()), Each(12));
}

TEST(OuterStepsOfRounds, RefuseWhatCannotBe) {
  const auto make = [](const Exchanges& one) { return [=] { OuterSteps(one, {0}); }; };
  EXPECT_THAT(make({.every = 8, .fragments = 3}), ThrowsMessage<ConfigError>(HasSubstr("divisor")));
  EXPECT_THAT(make({.every = 0}), ThrowsMessage<ConfigError>(HasSubstr("round of 0 steps")));
  EXPECT_THAT(make({.every = 8, .fragments = 2, .delay = 4}),
              ThrowsMessage<ConfigError>(HasSubstr("reaches the next turn")));
}

TEST(RoundingOfRounds, KeepsWhatBitsCanSay) {
  std::vector<float> values;
  for (int i = -1000; i <= 1000; ++i) values.push_back(static_cast<float>(i) * 0.0137F);
  const float largest = values.back();
  for (const Carried carried : {Carried::fp32, Carried::bf16, Carried::eight_bits, Carried::four_bits}) {
    std::vector<float> rounded = values;
    round_as(carried, rounded);
    std::vector<float> again = rounded;
    round_as(carried, again);
    EXPECT_THAT(again, Pointwise(FloatNear(1e-5F), rounded));
    std::set<float> distinct(rounded.begin(), rounded.end());
    if (bits_of(carried) < 16) {
      EXPECT_LE(distinct.size(), (1U << static_cast<unsigned>(bits_of(carried))) - 1);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float size = std::abs(values[i]);
      const float bound = carried == Carried::fp32         ? 0
                          : carried == Carried::bf16       ? size / 256
                          : carried == Carried::eight_bits ? largest / 254 * 1.001F
                          : size > largest / 64            ? size / 3 * 1.001F
                                                           : largest / 64;
      ASSERT_LE(std::abs(rounded[i] - values[i]), bound) << values[i];
    }
  }
  std::vector<float> nothing(3);
  round_as(Carried::four_bits, nothing);
  EXPECT_THAT(nothing, Each(0));
  EXPECT_EQ(carried_in(8), Carried::eight_bits);
  EXPECT_EQ(carried_in(5), std::nullopt);
}

TEST(SitesOfRounds, CountTheBytesOfWhatTheySend) {
  const SitesOptions options = small_sites();
  const double bytes = 4.0 * static_cast<double>(options.model.parameters());
  const Trained each = train_on_sites(options, kEveryStep, 1);
  EXPECT_EQ(each.sent_bytes, 96 * bytes);
  EXPECT_EQ(each.peak_bytes, bytes);
  EXPECT_EQ(train_on_sites(options, local_sgd(32), 1).sent_bytes, 3 * bytes);
  const Trained fragments =
      train_on_sites(options, {.every = 32, .fragments = 4, .delay = 5, .carried = Carried::four_bits}, 1);
  EXPECT_NEAR(fragments.peak_bytes, bytes / 8 / 4 / 5, 2);
  EXPECT_NEAR(fragments.sent_bytes, (3 + 0.75) * bytes / 8, 100) << "three rounds, and what is left";
}

TEST(SitesOfRounds, LearnAndOneAloneIsPlainTraining) {
  SitesOptions options = small_sites();
  const Trained each = train_on_sites(options, kEveryStep, 1);
  EXPECT_EQ(each.loss, train_on_sites(options, kEveryStep, 1).loss);
  EXPECT_NE(each.loss, train_on_sites(options, kEveryStep, 2).loss);
  EXPECT_LT(each.loss, 0.8 * each.by_bytes.front().second);
  EXPECT_NEAR(train_on_sites(options, local_sgd(1), 1).loss, each.loss, 0.2);
  EXPECT_LT(train_on_sites(options, {.every = 8, .momentum = 0.5}, 1).loss,
            0.8 * each.by_bytes.front().second);
  options.sites = 1;
  EXPECT_NEAR(train_on_sites(options, local_sgd(8), 1).loss, train_on_sites(options, kEveryStep, 1).loss,
              1e-3);
  options.steps = 0;
  EXPECT_THAT([&] { train_on_sites(options, kEveryStep, 1); },
              ThrowsMessage<ConfigError>(HasSubstr("learn nothing")));
}

}  // namespace
}  // namespace dear::studies::rounds::replicas_test
