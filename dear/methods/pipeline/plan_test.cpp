#include "dear/methods/pipeline/plan.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/models_in_test.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/platform/cluster/sites.h"

namespace dear::methods::pipeline::plan_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// A skip from op0 to op3, and integers from op1; three devices.
struct Small {
  OperatorDag dag = [] {
    std::vector<Operator> operators = chain_of(6, 1, 4000);
    operators[1].dtype = DType::i64;
    operators[3].inputs = {0, 1, 2};
    return OperatorDag("small", operators);
  }();
  PairCluster cluster = alike_cluster(3, 1, 100, 0.5);
  StageCosts costs{dag, cluster};
  Plan plan{.model = "small",
            .method = "by hand",
            .schedule = ScheduleKind::one_f_one_b,
            .micro_batches = 4,
            .stages = {{2, {0, 1}}, {0, {1, 2}}, {1, {2, 6}}},
            .warm_up = {4, 2, 1},
            .messages = {{.from_stage = 0, .output = 0, .activation_ratio = 10, .gradient_ratio = 4},
                         {.from_stage = 1, .output = 0, .activation_ratio = 20, .gradient_ratio = 1}}};
};

// Stage 1 finds the largest among 1000 elements of op0 in 2 s: it takes them from stage 0 and sends them on,
// and gives their gradient back to stage 0; that of stage 2 comes dense.
TEST(Plan, CountsTheTimeOfCompression) {
  Small small;
  small.cluster.devices[0].top_k_elements_per_second = 500;
  const PipelineTimes times = times_of(small.plan, small.costs);
  EXPECT_DOUBLE_EQ(times.stages[1].forward, 1 + 2 + 2);
  EXPECT_DOUBLE_EQ(times.stages[1].input_gradient, 1 + 2);
  EXPECT_DOUBLE_EQ(times.stages[1].weight_gradient, 1);
  EXPECT_DOUBLE_EQ(times.stages[0].forward, 1);
  EXPECT_DOUBLE_EQ(times.stages[2].forward, 4);
}

// Devices 2 and 0 have places 0 and 1; what device 0 shares with one that the plan does not use counts alone.
TEST(Plan, KnowsWhichOfItsLinksShareWires) {
  Small small;
  small.cluster.shared_wires = {{.bytes_per_second = 10, .links = {{2, 0}, {0, 1}}},
                                {.bytes_per_second = 20, .links = {{1, 2}}}};
  EXPECT_EQ(times_of(small.plan, small.costs).shared_wires,
            (std::vector<SharedWire>{{.bytes_per_second = 10, .links = {{0, 1}, {1, 2}}},
                                     {.bytes_per_second = 20, .links = {{2, 0}}}}));
  small.plan.stages = {{2, {0, 1}}, {0, {1, 6}}};
  small.plan.warm_up = {2, 1};
  small.plan.messages.clear();
  EXPECT_EQ(times_of(small.plan, small.costs).shared_wires,
            (std::vector<SharedWire>{{.bytes_per_second = 10, .links = {{0, 1}}}}));
}

// op0's output passes both links, once each, and is compressed on each of them; op1's is integers.
TEST(Plan, SendsASkipOnceOverEachLink) {
  const Small small;
  const PipelineTimes times = times_of(small.plan, small.costs);
  ASSERT_EQ(times.activations.size(), 2U);
  EXPECT_DOUBLE_EQ(times.activations[0].busy_seconds, 100 * 8 / 100.0);
  EXPECT_DOUBLE_EQ(times.gradients[0].busy_seconds, 250 * 8 / 100.0);
  EXPECT_DOUBLE_EQ(times.activations[1].busy_seconds, (50 * 8 + 4000) / 100.0);
  EXPECT_DOUBLE_EQ(times.gradients[1].busy_seconds, 4000 / 100.0);  // that of op0, dense
  EXPECT_DOUBLE_EQ(times.activations[1].latency_seconds, 0.5);
  EXPECT_DOUBLE_EQ(times.stages[2].forward, 4);
  EXPECT_THAT(times.shape.warm_up, ElementsAre(4, 2, 1));
}

// Every stage and link once, then the busiest three times more.
TEST(Plan, HasTheClosedFormOfFusionLlm) {
  const Small small;
  const PipelineTimes times = times_of(small.plan, small.costs);
  const double once = 18 + 8 + 20 + 44 + 40 + 4 * 0.5;
  EXPECT_DOUBLE_EQ(estimated_seconds(times), once + 3 * 44);
}

// Where stages are alike and links take no time, it is what is played.
TEST(Plan, HasAClosedFormThatIsExactForStagesAlike) {
  const OperatorDag dag("m", chain_of(8, 1, 0));
  const PairCluster cluster = alike_cluster(4, 1, 1);
  const StageCosts costs(dag, cluster);
  for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    const PipelineTimes times = times_of(make_plan(costs, {.schedule = schedule}), costs);
    EXPECT_DOUBLE_EQ(estimated_seconds(times), 4 * 6 + 7 * 6);
    EXPECT_DOUBLE_EQ(play(times).iteration_seconds, 4 * 6 + 7 * 6);
  }
}

TEST(Plan, KnowsTheMemoryOfEachDevice) {
  const Small small;
  // Parameters three times; held micro-batches with what they keep and what came.
  EXPECT_THAT(peak_bytes(small.plan, small.costs),
              ElementsAre(3 * 4 + 4 * 4000, 3 * 4 + 2 * 8000, 3 * 16 + 1 * (4 * 4000 + 8000)));
}

TEST(Plan, ExchangesGradientsOfTiedParameters) {
  std::vector<Operator> operators = chain_of(4, 1, 4000);
  operators[0].parameter_bytes = 5000;
  operators[3].tied = 0;
  const OperatorDag dag("tied", operators);
  const PairCluster cluster = alike_cluster(2, 1, 100);
  const StageCosts costs(dag, cluster);
  Plan plan{.model = "tied",
            .schedule = ScheduleKind::gpipe,
            .micro_batches = 1,
            .stages = {{0, {0, 2}}, {1, {2, 4}}}};
  const PipelineTimes times = times_of(plan, costs);
  ASSERT_EQ(times.exchanges.size(), 1U);
  EXPECT_DOUBLE_EQ(times.exchanges[0].there.busy_seconds, 50);
  // 12 s of work, 2 x 40 s of messages, and 50 s after the first stage's last gradient.
  EXPECT_DOUBLE_EQ(play(times).iteration_seconds, 12 + 80 + 50);
  plan.stages = {{0, {0, 4}}};
  EXPECT_TRUE(times_of(plan, costs).exchanges.empty());
}

// Of an embedding that picks 40 rows of 100 bytes for each of two micro-batches no more than these travel.
TEST(Plan, SendsTheRowsOfAnEmbeddingAndTheWholeGradientOfItsHead) {
  std::vector<Operator> operators = chain_of(4, 1, 4000);
  operators[0].parameter_bytes = 50000;
  operators[0].picks_rows = true;
  operators[3].tied = 0;
  Plan plan{.model = "tied",
            .schedule = ScheduleKind::gpipe,
            .micro_batches = 2,
            .stages = {{0, {0, 2}}, {1, {2, 4}}}};
  const PairCluster cluster = alike_cluster(2, 1, 100);
  const auto exchange = [&] {
    const OperatorDag dag("tied", operators);
    const PipelineTimes times = times_of(plan, StageCosts(dag, cluster));
    return std::pair(times.exchanges.at(0).there.busy_seconds, times.exchanges.at(0).back.busy_seconds);
  };
  EXPECT_EQ(exchange(), std::pair(80.0, 500.0));
  plan.micro_batches = 20;
  EXPECT_EQ(exchange(), std::pair(500.0, 500.0)) << "all rows";
  plan.micro_batches = 2;
  operators[1].tied = 0;  // another layer that reads all of it
  EXPECT_EQ(exchange(), std::pair(500.0, 500.0));
}

// Each of three devices sends its gradient to each other; the first holds it in two of its stages, the first
// of which is the last to have it.
TEST(Plan, SendsTiedGradientsFromEachHolderToEachOther) {
  std::vector<Operator> operators = chain_of(6, 1, 4000);
  operators[1].parameter_bytes = 1000;
  for (const std::size_t reader : {2, 3, 5}) operators[reader].tied = 1;
  operators[5].parameter_bytes = 0;
  const OperatorDag dag("tied", operators);
  const PairCluster cluster = alike_cluster(3, 1, 100);
  const StageCosts costs(dag, cluster);
  const Plan plan{.model = "tied",
                  .schedule = ScheduleKind::interleaved,
                  .micro_batches = 3,
                  .stages = {{2, {0, 1}}, {0, {1, 2}}, {1, {2, 3}}, {2, {3, 4}}, {0, {4, 5}}, {1, {5, 6}}}};
  std::vector<std::pair<int, int>> between;
  for (const Exchange& exchange : times_of(plan, costs).exchanges) {
    between.emplace_back(exchange.stages[0], exchange.stages[1]);
    EXPECT_DOUBLE_EQ(exchange.there.busy_seconds, 10);
    EXPECT_DOUBLE_EQ(exchange.back.busy_seconds, 10);
  }
  EXPECT_THAT(between, ElementsAre(std::pair(3, 1), std::pair(3, 2), std::pair(1, 2)));
}

// The last stage has its gradient 4 + 10 s before the first: of 20 s 6 remain; the first sends 2 s long.
TEST(Plan, CountsWhatOfTiedGradientsComesLate) {
  PipelineTimes times{.shape = {.schedule = ScheduleKind::gpipe, .places = 2, .micro_batches = 1},
                      .stages = {{1, 2, 2}, {1, 2, 2}},
                      .activations = {{.busy_seconds = 3}},
                      .gradients = {{.busy_seconds = 9, .latency_seconds = 1}}};
  EXPECT_DOUBLE_EQ(estimated_seconds(times), 23);
  times.exchanges = {{.stages = {0, 1}, .there = {.busy_seconds = 2}, .back = {.busy_seconds = 20}}};
  EXPECT_DOUBLE_EQ(estimated_seconds(times), 23 + 6);
  times.exchanges[0].back.busy_seconds = 10;
  EXPECT_DOUBLE_EQ(estimated_seconds(times), 23 + 2);
}

TEST(Plan, IsWrittenAndReadAsItIs) {
  const Small small;
  EXPECT_EQ(parse_plan(to_json(small.plan, small.costs), "x", small.costs), small.plan);
  const OperatorDag gpt = operators_of(zoo::find_model("gpt2"), {.batch = 8, .micro_batches = 8});
  const PairCluster sites = find_pair_cluster("three-sites");
  const StageCosts costs(gpt, sites);
  const std::string path = ::testing::TempDir() + "plan.json";
  for (const ScheduleInfo& schedule : schedule_kinds()) {
    const Plan plan =
        make_plan(costs, {.schedule = schedule.kind,
                          .micro_batches = schedule.kind == ScheduleKind::interleaved ? 24 : 8,
                          .stages_of_device = schedule.kind == ScheduleKind::interleaved ? 2 : 1,
                          .compression = {.rule = CompressionRule::ada_top_k, .ratio = 30}});
    EXPECT_FALSE(plan.messages.empty());
    write_plan(plan, costs, path);
    const Plan read = read_plan(path, costs);
    EXPECT_EQ(read, plan);
    EXPECT_EQ(read.digest(gpt), plan.digest(gpt));
  }
  std::filesystem::remove(path);
}

TEST(Plan, HasADigestOfAllThatARunNeeds) {
  const Small small;
  const std::uint64_t digest = small.plan.digest(small.dag);
  const std::vector<std::function<void(Plan&)>> changes{
      [](Plan& p) { p.schedule = ScheduleKind::zb_h1; },
      [](Plan& p) { p.micro_batches = 8; },
      [](Plan& p) { p.stages[0].device = 1; },
      [](Plan& p) { p.stages[1].operators.end = p.stages[2].operators.begin = 3; },
      [](Plan& p) { p.warm_up[1] = 3; },
      [](Plan& p) { p.messages[0].gradient_ratio = 5; },
      [](Plan& p) { p.messages.pop_back(); }};
  for (const auto& change : changes) {
    Plan plan = small.plan;
    change(plan);
    EXPECT_NE(plan.digest(small.dag), digest);
  }
  Plan plan = small.plan;
  plan.method = "another";
  EXPECT_EQ(plan.digest(small.dag), digest);
  EXPECT_NE(small.plan.digest(OperatorDag("small", chain_of(6, 1, 4000))), digest);
}

TEST(Plan, IsRefusedWithOneSentence) {
  const auto refused = [](auto change, const std::string& message) {
    const Small small;
    Plan plan = small.plan;
    change(plan);
    EXPECT_THAT([&] { check(plan, small.costs); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refused([](Plan& p) { p.stages.clear(); }, "a plan needs a stage");
  refused([](Plan& p) { p.stages[0].device = 3; }, "stage 0 is on device 3, but there are 3");
  refused([](Plan& p) { p.stages[1].operators = {1, 1}; }, "stage 1 has no operator");
  refused([](Plan& p) { p.stages[1].operators = {2, 3}; }, "but operator 1 of 6 comes next");
  refused([](Plan& p) { p.stages[2].operators.end = 5; }, "operator 'op5' is in no stage");
  refused([](Plan& p) { p.stages[2].operators.end = 7; }, "give all in order");
  refused([](Plan& p) { p.stages[2].device = 0; }, "out of turn");
  refused([](Plan& p) { p.stages[2].device = 2; }, "do not pass 2 devices equally often");
  refused([](Plan& p) { p.warm_up = {1, 2, 1}; }, "each would wait for the other");
  refused([](Plan& p) { p.micro_batches = 0; }, "cannot run 0 micro-batches");
  refused([](Plan& p) { p.messages[0].from_stage = 2; }, "behind which there is none");
  refused([](Plan& p) { p.messages[0].output = 1; }, "operator 'op1' does not travel from stage 0");
  refused([](Plan& p) { p.messages[0].output = 9; }, "operator 9 does not travel");
  refused([](Plan& p) { p.messages[1] = p.messages[0]; }, "is listed twice");
  for (const double ratio : {0.0, 0.9, kNan, HUGE_VAL})
    refused([&](Plan& p) { p.messages[0].gradient_ratio = ratio; },
            "operator 'op0' from stage 0 has a ratio");
  refused([](Plan& p) { p.messages[1].output = 1; }, "is of int64, of which none may be lost");

  Small small;
  small.cluster.devices[1].memory_bytes = 20000;
  EXPECT_THAT([&] { check(small.plan, small.costs); },
              ThrowsMessage<ConfigError>(HasSubstr("device 'd1' needs 23.5 KiB of memory and has 19.5 KiB")));
}

// The block of docs/formats.md that is of this format.
std::string documented(const std::string& format) {
  const std::string page = os::read_file(dear::testing::source_file("docs/formats.md"));
  const std::size_t named = page.find("\"format\": \"" + format + "\"");
  const std::size_t begin = page.rfind('{', named);
  return page.substr(begin, page.find("```", named) - begin);
}

TEST(PlanFile, IsThatOfThePage) {
  const OperatorDag dag = parse_operators(documented("dear-operators"), "page");
  const PairCluster cluster = parse_pair_cluster(documented("dear-pair-cluster"), "page");
  const StageCosts costs(dag, cluster);
  const Plan plan = parse_plan(documented("dear-pipeline-plan"), "page", costs);
  EXPECT_THAT(plan.warm_up, ElementsAre(3, 1));
  const PipelineTimes times = times_of(plan, costs);
  // 1 / 100 of the embedding's elements, 8 bytes each, and the mask, over 2.5 MB/s.
  EXPECT_DOUBLE_EQ(times.activations[0].busy_seconds, (8 * 2621 + 8192) / 2.5e6);
  EXPECT_EQ(times.exchanges.size(), 1U);
}

TEST(PlanFile, ThatWasEditedIsRefusedWithThePlace) {
  const Small small;
  const auto refused = [&](const std::string& replaced, const std::string& by, const std::string& message) {
    std::string text = to_json(small.plan, small.costs);
    ASSERT_NE(text.find(replaced), std::string::npos) << replaced << " in " << text;
    text.replace(text.find(replaced), replaced.size(), by);
    EXPECT_THAT([&] { parse_plan(text, "p.json", small.costs); },
                ThrowsMessage<ConfigError>(AllOf(StartsWith("p.json: "), HasSubstr(message))));
  };
  refused("\"small\"", "\"large\"", "model: the plan is of 'large', not of 'small'");
  refused("\"1f1b\"", "\"1f2b\"", "schedule: there is no schedule of a pipeline '1f2b'");
  refused("\"1f1b\"", "\"gpipe\"", "stages[0].warm_up: unknown");
  refused("[\"op0\"]", "[]", "stages[1].operators[0]: operator 'op1' stands where 'op0' comes next");
  refused("[\"op1\"]", "[\"op1\",\"op1\"]", "operator 'op1' stands where 'op2' comes next");
  refused("\"op5\"]", "\"op5\",\"op5\"]", "operator 'op5' stands where all of the model have been listed");
  refused(",\"op5\"]", "]", "operator 'op5' is in no stage");
  refused("\"d2\"", "\"d9\"", "stages[0].device: cluster 'alike' has no device 'd9'");
  refused("\"d2\"", "\"d1\"", "2 devices");
  refused("\"output\":\"op0\"", "\"output\":\"op9\"", "compressed[0].output: the model has no such operator");
  refused("\"activation_ratio\":10.0", "\"activation_ratio\":0.1", "has a ratio of 0.1");
  refused("\"micro_batches\": 4", "\"micro_batches\": 2", "the warm-up of stage 0 is 4");
  // One that can be is taken.
  std::string text = to_json(small.plan, small.costs);
  const std::string from = R"(["op1"])", to = R"(["op1","op2"])", rest = R"(["op2",)";
  text.replace(text.find(from), from.size(), to);
  text.replace(text.find(rest), rest.size(), "[");
  EXPECT_EQ(parse_plan(text, "x", small.costs).stages[2].operators.begin, 3);
}

}  // namespace
}  // namespace dear::methods::pipeline::plan_test
