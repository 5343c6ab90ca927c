#include "dear/methods/moe/partition.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/stack_in_test.h"
#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe::partition_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<InstructionId> all_of(const InstructionGraph& graph) { return graph.order(); }

// tokens -> f -> gate -> dispatch -> all-to-all -> experts -> all-to-all -> combine -> g, which adds
// `tokens`.
struct Mixture {
  std::vector<Value> values{{"tokens", {8, 6}},   {"f", {8, 6}},         {"routing", {48}},
                            {"sent", {2, 12, 6}}, {"there", {2, 12, 6}}, {"done", {2, 12, 6}},
                            {"back", {2, 12, 6}}, {"combined", {8, 6}},  {"y", {8, 6}},
                            {"weight", {6, 6}}};
  std::vector<Instruction> instructions{
      {.name = "f", .seconds = 1, .reads = {0, 9}, .writes = {1}, .cuts = cuts_of_matmul(2)},
      {.name = "gate", .role = Role::gate, .reads = {1}, .writes = {2}, .cuts = cuts_of_gate(0)},
      {.name = "dispatch",
       .role = Role::dispatch,
       .reads = {1, 2},
       .writes = {3},
       .cuts = cuts_of_dispatch()},
      {.name = "there",
       .kind = Kind::all_to_all,
       .seconds = 2,
       .reads = {3},
       .writes = {4},
       .cuts = cuts_of_buffer()},
      {.name = "experts",
       .seconds = 1,
       .role = Role::experts,
       .reads = {4},
       .writes = {5},
       .cuts = cuts_of_buffer()},
      {.name = "back",
       .kind = Kind::all_to_all,
       .seconds = 2,
       .reads = {5},
       .writes = {6},
       .cuts = cuts_of_buffer()},
      {.name = "combine", .role = Role::combine, .reads = {6, 2}, .writes = {7}, .cuts = cuts_of_combine()},
      {.name = "g", .seconds = 1, .reads = {7, 0}, .writes = {8}, .cuts = cuts_along({0, 1}, 2, 1)}};
  [[nodiscard]] InstructionGraph graph() const { return {values, instructions}; }
};

TEST(Axes, FollowTheBatchAndAreIrregularInBuffers) {
  const InstructionGraph graph = Mixture{}.graph();
  const RangeAxes axes = infer_axes(graph, all_of(graph));
  EXPECT_EQ(axes.refusal, "");
  EXPECT_THAT(axes.cut, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const Axis i = kIrregular;
  EXPECT_THAT(axes.axis, ElementsAre(0, 0, i, i, i, i, i, 0, 0, kWhole));
  EXPECT_THAT(axes.dimensions(graph), ElementsAre(8));
}

TEST(Axes, AreThoseOfTheCapacityForExpertsAlone) {
  const InstructionGraph graph = Mixture{}.graph();
  const RangeAxes axes = infer_axes(graph, {3, 4, 5});
  EXPECT_EQ(axes.axis[3], 1);
  EXPECT_EQ(axes.axis[6], 1);
  EXPECT_THAT(axes.dimensions(graph), ElementsAre(12));
  // Tokens are gathered by the parts of the batch that they came from, and a slice of the capacity has some
  // of each.
  EXPECT_EQ(infer_axes(graph, {3, 4, 5, 6}).refusal,
            "'combine' cannot be cut along the axes of what it reads");
}

TEST(Axes, EndAtAGateThatMustNotBeCut) {
  Mixture mixture;
  mixture.instructions[1].cuts.clear();
  mixture.instructions[1].uncut_reason = "it ranks the tokens of the whole batch";
  const InstructionGraph graph = mixture.graph();
  EXPECT_EQ(infer_axes(graph, all_of(graph)).refusal,
            "'gate' must not be cut: it ranks the tokens of the whole batch");
  const RangeAxes behind = infer_axes(graph, {2, 3, 4, 5, 6, 7});
  EXPECT_EQ(behind.refusal, "");
  EXPECT_EQ(behind.axis[2], kWhole);  // each part takes its own out of all
  EXPECT_EQ(behind.axis[7], 0);
}

// A mean over the batch, a batch norm, a softmax over it: they give no way to be cut.
TEST(Axes, RefuseWhatCouplesTheBatch) {
  for (const std::size_t which : {0, 7}) {
    Mixture mixture;
    mixture.instructions[which].cuts.clear();
    const InstructionGraph graph = mixture.graph();
    EXPECT_EQ(infer_axes(graph, all_of(graph)).refusal,
              "'" + graph[static_cast<InstructionId>(which)].name + "' must not be cut");
  }
  Mixture softmax;  // over axis 0: it may be cut along the other one, but the gate may not
  softmax.instructions[0].cuts = cuts_along({1}, 2, 1);
  const InstructionGraph graph = softmax.graph();
  EXPECT_THAT(infer_axes(graph, all_of(graph)).refusal, HasSubstr("'gate' cannot be cut along the axes"));
}

TEST(Axes, LeaveWholeWhatNoAllToAllTouches) {
  Mixture mixture;
  mixture.values.push_back({"aside", {8, 6}});
  mixture.instructions.push_back({.name = "aside", .seconds = 1, .reads = {0}, .writes = {10}});
  const InstructionGraph graph = mixture.graph();
  EXPECT_THAT(infer_axes(graph, all_of(graph)).cut, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(infer_axes(graph, {0, 1}).refusal, "it has no all-to-all");
}

TEST(Axes, LeaveTwoSamplesToAPart) {
  EXPECT_EQ(refusal_of({12, 24}, 6), "");
  EXPECT_THAT(refusal_of({12}, 5), HasSubstr("5 parts do not divide the 12"));
  EXPECT_THAT(refusal_of({8}, 12), HasSubstr("12 parts are more than the 8"));
  EXPECT_THAT(refusal_of({12}, 12), HasSubstr("12 parts leave fewer than two of the 12"));
}

// By the pencil, in two parts without overhead: compute f0 0-.5, f1 .5-1, e0 1.5-2, e1 2.5-3, g0 4..,
// all-to-alls there0 .5-1.5, there1 1.5-2.5, back0 2.5-3.5, back1 3.5-4.5; g0 3.5-4, g1 4.5-5.
TEST(Cut, IsAPipeline) {
  const InstructionGraph graph = Mixture{}.graph();
  EXPECT_DOUBLE_EQ(play(graph).iteration_seconds, 7);
  const InstructionGraph parts = cut(graph, {{0, 8, 2}}, equal_parts(0, 0));
  EXPECT_EQ(parts.size(), 16U);
  EXPECT_DOUBLE_EQ(play(parts).iteration_seconds, 5);
  std::string order;
  for (const InstructionId id : parts.order())
    if (parts[id].seconds > 0) order += parts[id].name + std::to_string(parts[id].part) + " ";
  EXPECT_EQ(order, "f0 f1 there0 there1 experts0 experts1 back0 back1 g0 g1 ");
  EXPECT_DOUBLE_EQ(play(cut(graph, {{0, 8, 2}}, equal_parts(0.1, 0.05))).compute_seconds, 3 * 1.1 + 6 * 0.05);
}

TEST(Cut, SaysWhyNot) {
  const InstructionGraph graph = Mixture{}.graph();
  const auto refusal = [&](std::vector<CutRange> ranges, const std::string& message) {
    EXPECT_THAT([&] { (void)cut(graph, ranges, equal_parts(0, 0)); },
                ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refusal({{0, 8, 3}},
          "the range from 'f' to 'g' cannot be cut into 3 parts, since 3 parts do not divide the 8");
  refusal({{0, 8, 16}}, "16 parts are more than the 8");
  refusal({{0, 2, 2}}, "since it has no all-to-all");
  refusal({{0, 9, 2}}, "positions 0 to 9 of 8 are no range");
  refusal({{3, 3, 2}}, "are no range");
  refusal({{0, 8, 0}}, "into 0 parts");
  refusal({{2, 8, 2}, {3, 6, 2}}, "'there' is in two ranges");
  const InstructionGraph parts = cut(graph, {{0, 8, 2}}, equal_parts(0, 0));
  EXPECT_THAT([&] { (void)cut(parts, {{0, 16, 2}}, equal_parts(0, 0)); },
              ThrowsMessage<ConfigError>(HasSubstr("the graph is cut already")));
}

// What is not cut waits for all parts, and parts for it.
TEST(Cut, KeepsWhatIsWholeInItsPlace) {
  Mixture mixture;
  mixture.values.push_back({"aside", {8, 6}});
  mixture.instructions.insert(mixture.instructions.begin() + 4,
                              {.name = "aside", .seconds = 3, .reads = {1}, .writes = {10}});
  mixture.instructions.back().reads = {7, 10};
  const InstructionGraph parts = cut(mixture.graph(), {{0, 9, 2}}, equal_parts(0, 0));
  for (const InstructionId id : parts.order())
    if (parts[id].name == "aside" || parts[id].name == "g") {
      EXPECT_EQ(parts.predecessors(id).size(), 2U) << parts[id].name;
    }
}

TEST(Groups, BreakAtGatesAndKeepMixturesWhole) {
  const InstructionGraph graph = Stack({.layers = 4, .attention = 2, .dense = 1}).graph();
  // attention, gate, mixture, {attention, dense, attention}, and so on.
  EXPECT_THAT(group_borders(graph, {.groups_between = 1}), ElementsAre(0, 1, 2, 7, 10, 11, 16, 18));
  EXPECT_THAT(group_borders(graph), ElementsAre(0, 1, 2, 7, 8, 9, 10, 11, 16, 17, 18));
  EXPECT_THROW((void)group_borders(graph, {.groups_between = 0}), ConfigError);
}

// A chain of groups as an oracle: compute, or a mixture {0, r, e, r, 0}. P by a recurrence over stages and
// parts.
struct Link {
  double seconds = 0;
  bool mixture = false, may_be_cut = true;
};
constexpr double kAllToAll = 1.5, kInefficiency = 0.06, kLaunch = 0.03;

double seconds_of(const std::vector<Link>& links, std::size_t begin, std::size_t end, int parts) {
  std::vector<std::vector<double>> stages(1);  // even ones compute, odd ones are all-to-alls
  for (std::size_t i = begin; i < end; ++i) {
    if (parts > 1 && !links[i].may_be_cut) return kNever;
    stages.back().push_back(links[i].seconds);
    if (links[i].mixture) stages.back().back() = 0;
    if (!links[i].mixture) continue;
    stages.insert(stages.end(), {{kAllToAll}, {links[i].seconds}, {kAllToAll}, {0}});
  }
  if (parts > 1 && stages.size() == 1) return kNever;
  std::vector<double> ready(static_cast<std::size_t>(parts));
  double lane[2] = {0, 0};
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (double& part : ready) {
      double start = std::max(part, lane[stage % 2]);
      for (const double whole : stages[stage])
        start += parts == 1 || whole == 0 ? whole : whole / parts * (1 + kInefficiency) + kLaunch;
      part = lane[stage % 2] = start;
    }
  return *std::max_element(ready.begin(), ready.end());
}

// Every way to cut the chain into ranges, with the rule for k.
double best_of_all(const std::vector<Link>& links, std::size_t begin, std::int64_t batch) {
  if (begin == links.size()) return 0;
  double best = kNever;
  int mixtures = 0;
  for (std::size_t end = begin + 1; end <= links.size(); ++end) {
    mixtures += links[end - 1].mixture ? 1 : 0;
    if (mixtures > 1) break;
    const double rest = best_of_all(links, end, batch);
    best = std::min(best, rest + seconds_of(links, begin, end, 1));
    double before = kNever;
    for (int parts = 2; parts <= 8; ++parts) {
      if (batch % parts != 0 || 2 * parts > batch) continue;
      const double seconds = seconds_of(links, begin, end, parts);
      if (seconds >= before) break;
      before = seconds;
      best = std::min(best, rest + seconds);
    }
  }
  return best;
}

InstructionGraph chain(const std::vector<Link>& links, std::int64_t batch) {
  std::vector<Value> values;
  std::vector<Instruction> instructions;
  const auto value = [&](bool buffer) {
    values.push_back(
        {"value", buffer ? std::vector<std::int64_t>{2, 64, 4} : std::vector{batch, std::int64_t{4}}});
    return static_cast<ValueId>(values.size() - 1);
  };
  ValueId x = value(false);
  const ValueId routing = value(false);  // of a gate before the chain
  const auto add = [&](Instruction instruction, bool to_buffer) {
    instruction.reads.insert(instruction.reads.begin(), x);
    x = value(to_buffer);
    instruction.writes = {x};
    instructions.push_back(std::move(instruction));
  };
  for (const Link& link : links) {
    if (!link.mixture) {
      add({.name = "f",
           .seconds = link.seconds,
           .cuts = link.may_be_cut ? cuts_along({0}, 1, 1) : std::vector<Cut>{}},
          false);
      continue;
    }
    add({.name = "dispatch", .role = Role::dispatch, .reads = {routing}, .cuts = cuts_of_dispatch()}, true);
    add({.name = "there", .kind = Kind::all_to_all, .seconds = kAllToAll, .cuts = cuts_of_buffer()}, true);
    add({.name = "experts", .seconds = link.seconds, .role = Role::experts, .cuts = cuts_of_buffer()}, true);
    add({.name = "back", .kind = Kind::all_to_all, .seconds = kAllToAll, .cuts = cuts_of_buffer()}, true);
    add({.name = "combine", .role = Role::combine, .reads = {routing}, .cuts = cuts_of_combine()}, false);
  }
  return {values, instructions};
}

TEST(Partition, IsTheBestOfAllOnShortChains) {
  std::mt19937 random(13);
  int cuts = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Link> links;
    const std::size_t count = 3 + random() % 8;
    for (std::size_t i = 0; i < count; ++i)
      links.push_back({.seconds = 0.25 * static_cast<double>(1 + random() % 6),
                       .mixture = random() % 3 == 0,
                       .may_be_cut = true});
    for (Link& link : links)
      if (!link.mixture && random() % 6 == 0) link.may_be_cut = false;
    const std::int64_t batch = 4 << random() % 3;
    const InstructionGraph graph = chain(links, batch);
    // So many groups between mixtures that each instruction is one.
    const Partition found =
        choose_partition(graph, equal_parts(kInefficiency, kLaunch), {.groups_between = 1000});
    EXPECT_NEAR(found.seconds, best_of_all(links, 0, batch), 1e-9);
    cuts += static_cast<int>(found.ranges.size());
    // Ranges one after another are no faster than the whole, which overlaps them where it can.
    EXPECT_LE(play(partition(graph, equal_parts(kInefficiency, kLaunch), {.groups_between = 1000}))
                  .iteration_seconds,
              found.seconds + 1e-9);
  }
  EXPECT_GT(cuts, 60);
}

TEST(Partition, CutsNothingWhereItDoesNotPay) {
  const InstructionGraph graph = Mixture{}.graph();
  EXPECT_THAT(choose_partition(graph, equal_parts(0, 10)).ranges, IsEmpty());
  EXPECT_EQ(partition(graph, equal_parts(0, 10)).digest(), graph.digest());
  EXPECT_THAT(choose_partition(graph, equal_parts(0, 0), {.max_parts = 1}).ranges, IsEmpty());
}

// Only the forward: the gate that may not be cut ends ranges, and what comes after it is cut.
TEST(Partition, BeginsBehindAGateThatMustNotBeCut) {
  const InstructionGraph graph = Stack({.layers = 4, .all_to_all = 1.5, .gate_may_be_cut = false}).graph();
  const Partition found = choose_partition(graph, equal_parts(0.06, 0.03));
  ASSERT_EQ(found.ranges.size(), 2U);
  for (const CutRange& range : found.ranges)
    for (std::size_t at = range.begin; at < range.end; ++at) {
      EXPECT_NE(graph[graph.order()[at]].role, Role::gate);
      EXPECT_EQ(graph[graph.order()[at]].pass, Pass::forward);
    }
}

TEST(Experts, AreHiddenAlone) {
  const InstructionGraph graph = Stack({.layers = 2, .all_to_all = 1}).graph();
  const InstructionGraph parts = overlap_experts(graph, 2, equal_parts(0, 0));
  int cut_all_to_alls = 0;
  for (const Instruction& instruction : parts.instructions()) {
    if (instruction.parts == 2 && instruction.kind == Kind::all_to_all) ++cut_all_to_alls;
    if (instruction.parts == 2) {
      EXPECT_TRUE(instruction.kind == Kind::all_to_all || instruction.role == Role::experts);
    }
  }
  EXPECT_EQ(cut_all_to_alls, 8);  // four of one mixture
  EXPECT_EQ(overlap_experts(graph, 1, equal_parts(0, 0)).digest(), graph.digest());
  EXPECT_THROW((void)overlap_experts(graph, 7, equal_parts(0, 0)), ConfigError);
}

}  // namespace
}  // namespace dear::methods::moe::partition_test
