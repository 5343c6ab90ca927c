#include "dear/methods/moe/weight_gradients.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe::weight_gradients_test {
namespace {

using ::testing::ElementsAre;
using Instructions = std::vector<Instruction>;

Instruction make(std::string name, Kind kind, double seconds, std::vector<InstructionId> after = {}) {
  return {.name = std::move(name),
          .kind = kind,
          .seconds = seconds,
          .after = std::move(after),
          .pass = Pass::backward};
}

constexpr WeightGradientOptions kAsInThePaper{.leave_what_is_too_long = false, .take_the_last_chance = false};

// A backward as a chain of links: dX, its dW beside, and an all-to-all. Ids: 3 i, 3 i + 1, 3 i + 2.
Instructions chain(const std::vector<double>& weights, const std::vector<double>& all_to_alls) {
  Instructions instructions;
  for (InstructionId i = 0; i < all_to_alls.size(); ++i) {
    const std::vector<InstructionId> before = i == 0 ? std::vector<InstructionId>{} : std::vector{3 * i - 1};
    instructions.push_back(make(fmt::format("dX {}", i), Kind::compute, 1, before));
    instructions.push_back(make(fmt::format("dW {}", i), Kind::weight_gradient, weights[i], {3 * i}));
    instructions.push_back(make(fmt::format("all-to-all {}", i), Kind::all_to_all, all_to_alls[i], {3 * i}));
  }
  return instructions;
}

TEST(Overlappable, IsWhatHasNoPathEitherWay) {
  Instructions instructions = chain({1, 1}, {2, 2});
  instructions.push_back(make("reduce", Kind::reduce_scatter, 1, {1}));
  instructions.push_back(make("update", Kind::update, 1, {6}));
  instructions.push_back(make("after the reduction", Kind::compute, 1, {6}));
  instructions.push_back(make("zeros", Kind::compute, 1));
  const std::vector<Overlappable> labels = overlappable(InstructionGraph(instructions));
  ASSERT_EQ(labels.size(), 2U);
  EXPECT_EQ(labels[0].all_to_all, 2U);
  EXPECT_THAT(labels[0].instructions, ElementsAre(1));  // dW 1 is behind the first
  EXPECT_THAT(labels[1].instructions, ElementsAre(1, 4));
}

// By the pencil: dX 0, dW 0, all-to-all 0, dX 1, ...; dW 0 was before all-to-all 0 and goes behind it.
TEST(WeightGradients, GoBehindTheAllToAllThatTheyFit) {
  const InstructionGraph graph(chain({2, 3}, {2, 3}));
  const Hiding hiding = hide_by_best_fit(graph);
  EXPECT_THAT(hiding.under[0].instructions, ElementsAre(1));
  EXPECT_THAT(hiding.under[1].instructions, ElementsAre(4));
  EXPECT_DOUBLE_EQ(hiding.hidden_seconds, 5);
  EXPECT_THAT(hide(graph, hiding).order(), ElementsAre(0, 2, 1, 3, 5, 4));
}

// The second fits better behind the second all-to-all; of two that fit alike the first in order is taken.
TEST(WeightGradients, TakeTheNearestAndOfSeveralTheFirst) {
  Instructions instructions{make("dX", Kind::compute, 1)};
  for (const double seconds : {1.0, 3.0, 3.0, 9.0})
    instructions.push_back(make("dW", Kind::weight_gradient, seconds, {0}));
  instructions.push_back(make("all-to-all", Kind::all_to_all, 4, {0}));
  const InstructionGraph graph(instructions);
  EXPECT_THAT(hide_by_best_fit(graph, kAsInThePaper).under[0].instructions, ElementsAre(2, 1));
  instructions[5].seconds = 4.1;  // 0.1 is left: the next is far longer, and the code leaves it
  EXPECT_THAT(hide_by_best_fit(InstructionGraph(instructions), kAsInThePaper).under[0].instructions,
              ElementsAre(2, 1, 3));
  EXPECT_THAT(
      hide_by_best_fit(InstructionGraph(instructions), {.take_the_last_chance = false}).under[0].instructions,
      ElementsAre(2, 1));
  // At its last chance it goes there all the same.
  EXPECT_THAT(hide_by_best_fit(InstructionGraph(instructions)).under[0].instructions,
              ElementsAre(2, 1, 3, 4));
}

TEST(WeightGradients, ComeAfterThoseThatTheyWaitFor) {
  Instructions instructions{make("dX", Kind::compute, 1), make("dW", Kind::weight_gradient, 5, {0}),
                            make("sum", Kind::compute, 1, {1}), make("all-to-all", Kind::all_to_all, 1, {0})};
  const InstructionGraph graph(instructions);
  EXPECT_THAT(hide_by_best_fit(graph, kAsInThePaper).under[0].instructions, ElementsAre(1));
  EXPECT_THAT(hide(graph, hide_by_best_fit(graph, kAsInThePaper)).order(), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(hide_by_best_fit(graph).under[0].instructions, ElementsAre(1, 2));
}

// The worst case that is known: what is left is all that the first all-to-all can take.
TEST(WeightGradients, FindLittleInTheWorstCase) {
  Instructions instructions{make("dX", Kind::compute, 1), make("dW", Kind::weight_gradient, 10, {0}),
                            make("short", Kind::all_to_all, 1, {0}), make("long", Kind::all_to_all, 10, {0})};
  const InstructionGraph graph(instructions);
  EXPECT_DOUBLE_EQ(hide_by_best_fit(graph).hidden_seconds, 1);
  EXPECT_DOUBLE_EQ(hide_by_search(graph).hidden_seconds, 10);
}

TEST(WeightGradients, AreLeftAloneWithoutAnAllToAll) {
  const InstructionGraph graph(
      Instructions{make("dX", Kind::compute, 1), make("dW", Kind::weight_gradient, 1, {0})});
  EXPECT_EQ(schedule_weight_gradients(graph).digest(), graph.digest());
  EXPECT_DOUBLE_EQ(hide_by_search(graph).hidden_seconds, 0);
}

TEST(WeightGradients, MayTakeNoTime) {
  const InstructionGraph graph(chain({0, 0, 0}, {0, 1, 0}));
  EXPECT_DOUBLE_EQ(hide_by_best_fit(graph, kAsInThePaper).hidden_seconds, 0);
  EXPECT_EQ(schedule_weight_gradients(graph).size(), graph.size());
}

// Nothing but the order tells them apart, so it decides, and every rank decides alike.
TEST(WeightGradients, AreDealtInOrderWhereAllTimesAreAlike) {
  Instructions instructions{make("dX", Kind::compute, 1)};
  for (int i = 0; i < 4; ++i) instructions.push_back(make("dW", Kind::weight_gradient, 1, {0}));
  for (int i = 0; i < 2; ++i) instructions.push_back(make("all-to-all", Kind::all_to_all, 2, {0}));
  const Hiding hiding = hide_by_best_fit(InstructionGraph(instructions));
  EXPECT_THAT(hiding.under[0].instructions, ElementsAre(1, 2));
  EXPECT_THAT(hiding.under[1].instructions, ElementsAre(3, 4));
  EXPECT_DOUBLE_EQ(hiding.hidden_seconds, 4);
}

// All choices, one after another.
double brute_force(const InstructionGraph& graph, const std::vector<Overlappable>& labels,
                   const std::vector<InstructionId>& weights, std::size_t next, std::vector<double>& load) {
  double best = 0;
  if (next == weights.size()) {
    for (std::size_t a = 0; a < labels.size(); ++a)
      best += std::min(graph[labels[a].all_to_all].seconds, load[a]);
    return best;
  }
  best = brute_force(graph, labels, weights, next + 1, load);
  for (std::size_t a = 0; a < labels.size(); ++a) {
    const auto& allowed = labels[a].instructions;
    if (std::count(allowed.begin(), allowed.end(), weights[next]) == 0) continue;
    load[a] += graph[weights[next]].seconds;
    best = std::max(best, brute_force(graph, labels, weights, next + 1, load));
    load[a] -= graph[weights[next]].seconds;
  }
  return best;
}

double optimum(const InstructionGraph& graph) {
  std::vector<InstructionId> weights;
  for (InstructionId id = 0; id < graph.size(); ++id)
    if (graph[id].kind == Kind::weight_gradient) weights.push_back(id);
  const std::vector<Overlappable> labels = overlappable(graph);
  std::vector<double> load(labels.size());
  return brute_force(graph, labels, weights, 0, load);
}

// Random acyclic graphs of any shape: what is found is a topological order with everything in it, and never
// hides more than the best choice, which the search finds.
TEST(WeightGradients, HideNoMoreThanTheBestChoice) {
  std::mt19937 random(11);
  double sum = 0, of = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Instructions instructions;
    instructions.push_back(make("root", Kind::compute, 0));
    std::size_t weights = 0;
    for (InstructionId id = 1; id < 12; ++id) {
      std::vector<InstructionId> after{0};
      for (InstructionId before = 1; before < id; ++before)
        if (random() % 5 == 0) after.push_back(before);
      const bool weight = id - 1 - weights == 4 || (weights < 7 && random() % 3 != 0);
      weights += weight ? 1 : 0;
      instructions.push_back(make(fmt::format("{}", id), weight ? Kind::weight_gradient : Kind::all_to_all,
                                  static_cast<double>(1 + random() % 9), after));
    }
    const InstructionGraph graph(instructions);
    const double best = optimum(graph);
    const Hiding search = hide_by_search(graph);
    EXPECT_DOUBLE_EQ(search.hidden_seconds, best);
    for (const WeightGradientOptions& options : {WeightGradientOptions{}, kAsInThePaper}) {
      const Hiding hiding = hide_by_best_fit(graph, options);
      EXPECT_LE(hiding.hidden_seconds, best + 1e-9);
      std::set<InstructionId> placed;
      for (const Hiding::Under& under : hiding.under)
        for (const InstructionId id : under.instructions) EXPECT_TRUE(placed.insert(id).second);
      const InstructionGraph scheduled = hide(graph, hiding);  // refuses what is no topological order
      EXPECT_EQ(scheduled.size(), graph.size());
    }
    sum += hide_by_best_fit(graph).hidden_seconds;
    of += best;
  }
  RecordProperty("hidden_of_best", fmt::format("{:.3f}", sum / of));
}

// Backwards as networks with mixtures have them.
TEST(WeightGradients, FindFourFifthsOfTheBestInMixtures) {
  std::mt19937 random(3);
  double least = 1;
  for (int trial = 0; trial < 20; ++trial) {
    Instructions instructions;
    InstructionId last = 0;
    const double all_to_all = 0.5 + 0.25 * static_cast<double>(random() % 9);
    instructions.push_back(make("loss", Kind::compute, 1));
    const auto link = [&](Kind kind, double seconds) {
      instructions.push_back(make("link", kind, seconds, {last}));
      last = static_cast<InstructionId>(instructions.size() - 1);
    };
    const auto weight = [&](double seconds) {
      instructions.push_back(make("dW", Kind::weight_gradient, seconds, {last}));
    };
    for (int mixture = 0; mixture < 2; ++mixture) {  // a dense layer, then one with a mixture
      const double expert = 0.5 + 0.25 * static_cast<double>(random() % 5);
      link(Kind::compute, 1), weight(1), weight(0.5);
      link(Kind::compute, 1), weight(0.75);
      link(Kind::all_to_all, all_to_all);
      link(Kind::compute, expert), weight(expert);
      link(Kind::all_to_all, all_to_all);
      link(Kind::compute, 0.2), weight(0.1);
    }
    const InstructionGraph graph(instructions);
    const double share = hide_by_best_fit(graph).hidden_seconds / optimum(graph);
    least = std::min(least, share);
  }
  RecordProperty("least_of_best", fmt::format("{:.3f}", least));
  EXPECT_GE(least, 0.8);
}

TEST(Search, RefusesWhatWouldTakeForEver) {
  Instructions instructions{make("dX", Kind::compute, 1), make("all-to-all", Kind::all_to_all, 1, {0})};
  for (std::size_t i = 0; i <= kMostToSearch; ++i)
    instructions.push_back(make("dW", Kind::weight_gradient, 1, {0}));
  EXPECT_THROW((void)hide_by_search(InstructionGraph(instructions)), ConfigError);
}

}  // namespace
}  // namespace dear::methods::moe::weight_gradients_test
