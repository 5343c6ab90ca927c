#include "dear/methods/moe/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::moe::routing_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Numbers = std::vector<std::int64_t>;

// A batch of samples of four tokens, and the experts that they choose.
struct Batch {
  std::int64_t samples = 0, experts = 0, capacity = 0;
  int choices = 1;
  std::vector<std::int32_t> chosen{};
  std::vector<float> scores{};
  [[nodiscard]] std::size_t size() const { return chosen.size(); }
};
constexpr std::int64_t kTokens = 4;

// For each choice of each token, its place with its expert on this rank, or kDropped: a loop over tokens.
Numbers places_by_hand(const Batch& batch) {
  Numbers places, taken(static_cast<std::size_t>(batch.experts));
  for (const std::int32_t expert : batch.chosen) {
    std::int64_t& next = taken[static_cast<std::size_t>(expert)];
    places.push_back(next < batch.capacity ? next : kDropped);
    ++next;
  }
  return places;
}

// The same from parts; `pass_on`: each part is told what those before it took, and `capacity` is that of a
// part.
Numbers places_from_parts(const Batch& batch, int parts, bool pass_on, std::int64_t capacity) {
  Numbers places, used(static_cast<std::size_t>(batch.experts)), before(used);
  for (const TokenRange& range : parts_of_batch(batch.samples, kTokens, parts)) {
    const auto begin = static_cast<std::size_t>(range.begin * batch.choices);
    const auto count = static_cast<std::size_t>((range.end - range.begin) * batch.choices);
    const std::span<const std::int32_t> chosen(batch.chosen.data() + begin, count);
    Numbers slots(count), own(used.size());
    const Numbers kept = place_in_order(chosen, capacity, pass_on ? used : own, slots);
    for (std::size_t i = 0; i < count; ++i)
      places.push_back(slots[i] == kDropped ? kDropped
                                            : before[static_cast<std::size_t>(chosen[i])] + slots[i]);
    for (std::size_t expert = 0; expert < kept.size(); ++expert) before[expert] += kept[expert];
    EXPECT_LE(*std::max_element(kept.begin(), kept.end()), capacity);
  }
  return places;
}

enum class Spread : std::uint8_t { uneven, one_expert, half_of_the_experts };

Batch make_batch(std::mt19937& random, Spread spread, double factor, int choices) {
  Batch batch{.samples = 8, .experts = 4, .choices = choices};
  batch.capacity = capacity_of(factor, batch.samples * kTokens, batch.experts);
  for (std::int64_t token = 0; token < batch.samples * kTokens; ++token) {
    const std::uint32_t draw = random() % 8;
    std::int32_t first = draw < 5 ? 1 : static_cast<std::int32_t>(draw - 5) % 4;
    if (spread == Spread::one_expert) first = 2;
    if (spread == Spread::half_of_the_experts) first = static_cast<std::int32_t>(draw % 2);
    for (int choice = 0; choice < choices; ++choice) {
      batch.chosen.push_back((first + choice) % 4);
      batch.scores.push_back(static_cast<float>(random() % 64) / 64);  // with ties
    }
  }
  return batch;
}

class Routing : public ::testing::TestWithParam<std::tuple<Spread, double, int>> {
 protected:
  [[nodiscard]] Batch draw(std::mt19937& random) const {
    const auto& [spread, factor, choices] = GetParam();
    return make_batch(random, spread, factor, choices);
  }
};

TEST_P(Routing, IsTheSameInParts) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    const Batch batch = draw(random);
    for (const int parts : {1, 2, 4})
      EXPECT_EQ(places_from_parts(batch, parts, true, batch.capacity), places_by_hand(batch));
  }
}

// Each token in the order of its importance, found by asking for the most important one again and again.
TEST_P(Routing, ByImportanceIsTheSameInParts) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 20; ++trial) {
    const Batch batch = draw(random);
    const auto width = static_cast<std::size_t>(batch.choices);
    std::vector<double> importance(batch.size() / width);
    for (std::size_t i = 0; i < batch.size(); ++i) importance[i / width] += batch.scores[i];
    std::vector<bool> keeps(batch.size());
    Numbers taken(static_cast<std::size_t>(batch.experts));
    for (std::size_t round = 0; round < importance.size(); ++round) {
      const auto most = std::max_element(importance.begin(), importance.end());
      *most = -1;
      for (std::size_t choice = 0; choice < width; ++choice) {
        const std::size_t i = static_cast<std::size_t>(most - importance.begin()) * width + choice;
        std::int64_t& places = taken[static_cast<std::size_t>(batch.chosen[i])];
        keeps[i] = places < batch.capacity;
        places += keeps[i] ? 1 : 0;
      }
    }

    Numbers slots(batch.size());
    const Numbers kept =
        place_by_importance(batch.chosen, batch.choices, batch.scores, batch.capacity, batch.experts, slots);
    EXPECT_EQ(kept, taken);
    for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(slots[i] != kDropped, keeps[i]);
    for (const int parts : {1, 2, 4}) {
      Numbers sum(kept.size());
      for (const TokenRange& range : parts_of_batch(batch.samples, kTokens, parts)) {
        const auto begin = static_cast<std::size_t>(range.begin) * width;
        const auto end = static_cast<std::size_t>(range.end) * width;
        Numbers own(slots.begin() + static_cast<std::ptrdiff_t>(begin),
                    slots.begin() + static_cast<std::ptrdiff_t>(end));
        const Numbers counts = take_part({batch.chosen.data() + begin, end - begin}, batch.experts, own);
        Numbers next(kept.size());
        for (std::size_t i = begin; i < end; ++i) {
          ASSERT_EQ(own[i - begin] != kDropped, keeps[i]);
          if (keeps[i]) {
            EXPECT_EQ(own[i - begin], next[static_cast<std::size_t>(batch.chosen[i])]++);
          }
        }
        EXPECT_EQ(counts, next);
        for (std::size_t expert = 0; expert < sum.size(); ++expert) sum[expert] += counts[expert];
      }
      EXPECT_EQ(sum, kept);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gates, Routing,
                         ::testing::Combine(::testing::Values(Spread::uneven, Spread::one_expert,
                                                              Spread::half_of_the_experts),
                                            ::testing::Values(0.5, 1.25, 4.0), ::testing::Values(1, 2)));

// What cuts the capacity too drops other tokens: the comparison above would show it.
TEST(RoutingInParts, IsWrongWithoutPassingCapacityOn) {
  std::mt19937 random(7);
  for (const int choices : {1, 2})
    for (const int parts : {2, 4}) {
      int wrong = 0;
      for (int trial = 0; trial < 50; ++trial) {
        const Batch batch = make_batch(random, Spread::uneven, 1.25, choices);
        wrong +=
            places_from_parts(batch, parts, false, batch.capacity / parts) != places_by_hand(batch) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 50) << choices << ", " << parts;
    }
}

// All first choices of a part before its second ones: in a whole batch others are dropped, whatever is passed
// on.
TEST(RoutingInParts, IsWrongWhereFirstChoicesGoFirst) {
  const auto by_choice = [](const std::vector<std::int32_t>& chosen) {  // positions
    std::vector<std::size_t> order;
    for (const std::size_t choice : {0U, 1U})
      for (std::size_t i = choice; i < chosen.size(); i += 2) order.push_back(i);
    return order;
  };
  std::mt19937 random(7);
  int wrong = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const Batch batch = make_batch(random, Spread::uneven, 1, 2);
    const auto kept_in = [&](int parts) {
      std::vector<bool> kept(batch.size());
      Numbers used(static_cast<std::size_t>(batch.experts));
      for (const TokenRange& range : parts_of_batch(batch.samples, kTokens, parts)) {
        const auto begin = batch.chosen.begin() + 2 * range.begin, end = batch.chosen.begin() + 2 * range.end;
        const std::vector<std::int32_t> own(begin, end);
        std::vector<std::int32_t> sorted;
        for (const std::size_t i : by_choice(own)) sorted.push_back(own[i]);
        Numbers slots(own.size());
        place_in_order(sorted, batch.capacity, used, slots);
        for (std::size_t i = 0; i < own.size(); ++i)
          kept[static_cast<std::size_t>(2 * range.begin) + by_choice(own)[i]] = slots[i] != kDropped;
      }
      return kept;
    };
    wrong += kept_in(2) != kept_in(1) ? 1 : 0;
  }
  EXPECT_GT(wrong, 40);
}

TEST(Routing, CountsRowsByRank) {
  EXPECT_THAT(rows_by_rank(Numbers{1, 0, 3, 4}, 2), ElementsAre(1, 7));
  EXPECT_THAT(rows_by_rank(Numbers{1, 0, 0, 0}, 4), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(rows_by_rank(Numbers{2, 5}, 1), ElementsAre(7));
}

TEST(Routing, HasCapacityForAShareOfTheTokens) {
  EXPECT_EQ(capacity_of(1, 16, 4), 4);
  EXPECT_EQ(capacity_of(1, 17, 4), 5);
  EXPECT_EQ(capacity_of(1.25, 17, 4), 6);
  EXPECT_EQ(capacity_of(0.5, 17, 4), 2);
  EXPECT_EQ(capacity_of(1, 4, 4), 1);
}

void expect_refused(const std::function<void()>& call, const std::string& message) {
  EXPECT_THAT(call, ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(Routing, RefusesWhatCannotBe) {
  const std::vector<std::int32_t> chosen{0, 1, 1, 0};
  const std::vector<float> scores(4, 0.5F);
  Numbers used(2), slots(4), few(3);
  expect_refused([] { capacity_of(1, 3, 4); }, "3 tokens are too few for 4 experts");
  expect_refused([] { capacity_of(0, 8, 4); }, "a capacity factor of 0 cannot be");
  expect_refused([] { capacity_of(std::nan(""), 8, 4); }, "a capacity factor of nan cannot be");
  expect_refused([] { capacity_of(0.4, 8, 4); },
                 "leaves experts no place for 8 tokens of a rank: give at least 0.5");
  expect_refused([] { experts_of_rank(6, 4); }, "6 experts cannot be dealt to 4 ranks alike");
  expect_refused([] { experts_of_rank(2, 4); }, "2 experts cannot be dealt to 4 ranks alike");
  expect_refused([] { parts_of_batch(6, 4, 4); }, "4 parts do not divide a batch of 6");
  expect_refused([] { parts_of_batch(6, 4, 8); }, "a batch of 6 cannot be cut into 8 parts");
  expect_refused([] { parts_of_batch(6, 4, 0); }, "a batch of 6 cannot be cut into 0 parts");
  expect_refused([&] { place_in_order(chosen, 0, used, slots); }, "experts with 0 places take no token");
  expect_refused([&] { place_in_order(chosen, 2, used, few); }, "3 slots do not fit 4 choices");
  expect_refused([&] { place_in_order(std::vector{0, 2, 1, 1}, 2, used, slots); },
                 "a token chose expert 2, but there are 2");
  expect_refused([&] { place_in_order(std::vector{0, -1, 1, 1}, 2, used, slots); },
                 "a token chose expert -1");
  EXPECT_THAT(used, ElementsAre(0, 0));
  used[1] = 3;
  expect_refused([&] { place_in_order(chosen, 2, used, slots); }, "the parts before took 3 of 2 places");
  expect_refused([&] { place_by_importance(chosen, 3, scores, 2, 2, slots); }, "are not 3 of each token");
  expect_refused([&] { place_by_importance(chosen, 1, std::vector<float>(3), 2, 2, slots); },
                 "3 scores do not fit 4");
  expect_refused(
      [&] { place_by_importance(chosen, 1, std::vector{1.F, std::nanf(""), 1.F, 1.F}, 2, 2, slots); },
      "the scores of token 1 are not numbers");
}

TEST(Routing, NamesWhoSendsTooMuch) {
  EXPECT_NO_THROW(check_counts(Numbers{0, 4, 0, 0}, 4, 2, 1));
  EXPECT_THAT([] { check_counts(Numbers{0, 4, 5, 0}, 4, 2, 1); },
              ThrowsMessage<MismatchError>(
                  HasSubstr("rank 1: rank 1 says that it sends 5 tokens to expert 2, which has 4 places")));
  EXPECT_THROW(check_counts(Numbers{0, -1}, 4, 2, 0), MismatchError);
}

}  // namespace
}  // namespace dear::methods::moe::routing_test
