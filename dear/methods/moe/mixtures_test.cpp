#include "dear/methods/moe/mixtures.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/all_to_all_times.h"
#include "dear/methods/moe/passes.h"
#include "dear/platform/cluster/presets.h"
#include "dear/workload/zoo/make_workload.h"

namespace dear::methods::moe::mixtures_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// (P - 1) alpha + (P - 1)/P m beta, and straight lines between sizes.
TEST(AllToAllTimes, AreThoseOfTheLinks) {
  const double alpha = 1e-5, beta = 1e-9;
  const AllToAllTimes times = AllToAllTimes::on(flat_cluster({"flat", {alpha, beta}}, 4));
  for (const std::int64_t bytes : {1024, 4096, 5000, 1 << 20})
    EXPECT_NEAR(times.seconds(bytes), 3 * alpha + 0.75 * beta * static_cast<double>(bytes), 1e-12) << bytes;
  EXPECT_NEAR(times.seconds(std::int64_t{1} << 30), 3 * alpha + 0.75 * beta * 0x1p30,
              1e-9);  // beyond the points
  EXPECT_DOUBLE_EQ(times.seconds(0), 0);
  EXPECT_DOUBLE_EQ(times.seconds(1), times.seconds(1024));
}

// Only sizes that are asked for are played, and the times are those of all.
TEST(AllToAllTimes, NeedNoMoreThanTheirSizes) {
  const Cluster cluster = find_cluster("p3dn-64", 16);
  const AllToAllTimes all = AllToAllTimes::on(cluster);
  for (const std::int64_t most :
       {std::int64_t{1}, std::int64_t{1024}, std::int64_t{5000}, std::int64_t{1} << 20,
        (std::int64_t{1} << 28) - 1, std::int64_t{1} << 28, std::int64_t{1} << 31}) {
    const AllToAllTimes some = AllToAllTimes::on(cluster, most / 64, most);
    for (const std::int64_t parts : {1, 2, 3, 7, 8, 64})
      EXPECT_EQ(some.seconds(most / parts), all.seconds(most / parts)) << most << " in " << parts;
  }
}

TEST(AllToAllTimes, AreStraightBetweenPoints) {
  const AllToAllTimes times({{100, 1}, {200, 3}, {400, 4}});
  EXPECT_DOUBLE_EQ(times.seconds(50), 1);
  EXPECT_DOUBLE_EQ(times.seconds(150), 2);
  EXPECT_DOUBLE_EQ(times.seconds(200), 3);
  EXPECT_DOUBLE_EQ(times.seconds(300), 3.5);
  EXPECT_DOUBLE_EQ(times.seconds(800), 6);
  EXPECT_DOUBLE_EQ(AllToAllTimes({{100, 1}}).seconds(800), 1);
  EXPECT_THROW(AllToAllTimes({}), ConfigError);
  EXPECT_THROW(AllToAllTimes({{100, 1}, {100, 2}}), ConfigError);
  EXPECT_THROW(AllToAllTimes({{100, -1}}), ConfigError);
  EXPECT_THROW(AllToAllTimes({{-5, 1}}), ConfigError);
}

TEST(Mixtures, HaveTheInstructionsOfTheirModels) {
  const zoo::Device& device = zoo::find_device("v100");
  const MixtureJob job = make_job(find_mixture_model("gpt2-s-moe"), device, find_cluster("p3dn-64", 16));
  EXPECT_EQ(job.graph.all_to_alls().size(), 4U * 6U);
  EXPECT_EQ(make_job(find_mixture_model("gpt2-l-moe"), device, find_cluster("p3dn-64", 8))
                .graph.all_to_alls()
                .size(),
            4U * 12U);
  // 16 sequences of 512 for 32 experts: 256 places and a quarter more.
  EXPECT_EQ(job.capacity, 320);
  // Two experts, 320 places for each of 16 ranks, two products, in fp32 as the table of devices has it.
  const double rows = 2 * 320 * 16;
  const double flops = 2 * 2 * rows * 768 * 3072;
  EXPECT_NEAR(job.expert_seconds, flops / (15.7e12 * 0.8), 0.05 * job.expert_seconds);
  EXPECT_GE(job.expert_seconds, flops / (15.7e12 * 0.8));
  // 7/8 and more of 32 * 320 * 768 floats of eight ranks go over one card.
  const double sent = 32.0 * 320 * 768 * 4 * 8 / 2;
  EXPECT_NEAR(job.all_to_all_seconds, sent * 8e-11, 0.2 * job.all_to_all_seconds);

  std::set<std::string> names;
  double forward = 0, weights = 0;
  for (const Instruction& instruction : job.graph.instructions()) {
    EXPECT_TRUE(names.insert(instruction.name).second) << instruction.name;
    if (instruction.name == "block 3 qkv") forward = instruction.seconds;
    if (instruction.name == "dW block 3 qkv") weights = instruction.seconds;
  }
  EXPECT_GT(forward, 0);
  EXPECT_DOUBLE_EQ(weights, forward);
}

// The zoo counts the same network layer by layer, with dropout and the losses' logarithms beside, but without
// experts: with a quarter more tokens than the rank has, they take a quarter more than the perceptrons of
// every second layer.
TEST(Mixtures, ComputeAsLongAsTheZooSays) {
  for (const auto& [name, dense, mixtures, width] :
       {std::tuple("gpt2-s-moe", "gpt2", 6, 768.), std::tuple("gpt2-l-moe", "gpt2-medium", 12, 1024.)}) {
    const zoo::Device& device = zoo::find_device("v100");
    const Workload workload =
        zoo::make_workload(zoo::find_model(dense), device, {.batch = 8, .size = 512, .dtype = DType::f32});
    const double more = mixtures * 0.25 * 16 * width * width * 8 * 512 / (15.7e12 * 0.8);
    const double forward_seconds = workload.forward_seconds() + more;
    const double backward_seconds = workload.backward_seconds() + 2 * more;
    const MixtureJob job =
        make_job(find_mixture_model(name), device, find_cluster("p3dn-64", 64), {.batch = 8});
    double forward = 0, backward = 0;
    for (const Instruction& instruction : job.graph.instructions())
      if (!communicates(instruction.kind) && instruction.pass != Pass::update)
        (instruction.pass == Pass::forward ? forward : backward) += instruction.seconds;
    EXPECT_NEAR(forward / forward_seconds, 1, 0.1) << name;
    EXPECT_NEAR(backward / backward_seconds, 1, 0.1) << name;
  }
}

TEST(Mixtures, TakeLongerInParts) {
  const MixtureJob job =
      make_job(find_mixture_model("gpt2-s-moe"), zoo::find_device("v100"), find_cluster("p3dn-64", 16));
  for (const Instruction& instruction : job.graph.instructions()) {
    if (instruction.cuts.empty() || instruction.seconds == 0) continue;
    double before = instruction.seconds;
    for (const int parts : {2, 4, 8}) {
      const double seconds = parts * job.part_seconds(instruction, parts);
      EXPECT_GT(seconds, before * 0.999) << instruction.name;
      EXPECT_LT(seconds, 2 * instruction.seconds + 1e-3) << instruction.name;
      before = seconds;
    }
  }
  EXPECT_THROW((void)job.part_seconds({.name = "of another model"}, 2), ConfigError);
}

// What the passes are for; in the text the best of 64 GPUs are 1.21 (A100) and 1.30 (V100) times as fast as
// the best rival, and less with a gate that is not cut.
TEST(Mixtures, AreFasterThanWithExpertsAlone) {
  const zoo::Device& device = zoo::find_device("v100");
  const auto seconds = [&](const char* passes, Gate gate) {
    const MixtureJob job =
        make_job(find_mixture_model("gpt2-s-moe"), device, find_cluster("p3dn-64", 16), {.gate = gate});
    const Passed passed = run(job.graph, find_passes(passes), job.part_seconds, {.iterations = 4});
    for (const CutRange& range : passed.ranges) EXPECT_LE(range.parts, 4);
    return passed.times.iteration_seconds;
  };
  const double none = seconds("unoptimised", Gate::in_order), experts = seconds("experts", Gate::in_order);
  const double both = seconds("lancet", Gate::in_order), ranked = seconds("lancet", Gate::by_importance);
  const double dw = seconds("dw", Gate::in_order), partition = seconds("partition", Gate::in_order);
  EXPECT_LT(experts, none);
  EXPECT_GT(experts / both, 1.1);
  EXPECT_LT(experts / both, 1.3);
  EXPECT_LE(both, ranked);
  EXPECT_LT(ranked, experts);
  EXPECT_LT(both, std::min(dw, partition));
  EXPECT_LT(std::max(dw, partition), none);
}

// Shared experts need no token of another rank: they go under the all-to-alls of the others.
TEST(Mixtures, PutSharedExpertsUnderAllToAlls) {
  const MixtureJob job = make_job(find_mixture_model("deepseek-moe-16b"), zoo::find_device("a100"),
                                  find_cluster("p4de-64", 16), {.batch = 2, .dtype = DType::bf16});
  EXPECT_EQ(job.capacity, 1.25 * 6 * 128);  // of six choices of 8192 tokens among 64 experts
  const Passed base = run(job.graph, find_passes("unoptimised"), job.part_seconds);
  const Passed dw = run(job.graph, find_passes("dw"), job.part_seconds);
  EXPECT_LT(dw.times.iteration_seconds, base.times.iteration_seconds);
  const auto place = [](const InstructionGraph& graph, const std::string& name) {
    return std::find_if(graph.order().begin(), graph.order().end(),
                        [&](InstructionId id) { return graph[id].name == name; }) -
           graph.order().begin();
  };
  for (const char* name : {"block 5 shared up", "block 5 shared down"}) {
    EXPECT_GT(place(base.graph, name), place(base.graph, "block 5 combine"));
    EXPECT_LT(place(dw.graph, name), place(dw.graph, "block 5 combine"));
    EXPECT_GT(place(dw.graph, name), place(dw.graph, "block 5 all-to-all 1"));
  }
}

TEST(Mixtures, AreRefusedWithOneSentence) {
  const MixtureModel& model = find_mixture_model("gpt2-s-moe");
  const auto refusal = [&](const MixtureModel& of, const char* device, MixtureOptions options,
                           const std::string& message) {
    EXPECT_THAT([&] { (void)make_job(of, zoo::find_device(device), find_cluster("p3dn-64", 8), options); },
                ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refusal(model, "h100", {}, "nobody said with which batch gpt2-s-moe trains on 'h100'");
  refusal(model, "v100", {.batch = -1}, "a batch of -1 cannot be");
  refusal(model, "v100", {.dtype = DType::i64}, "nothing is known of training in");
  refusal(model, "v100", {.capacity_factor = 0}, "a capacity factor of 0 cannot be");
  MixtureModel odd = model;
  odd.experts = 12;
  refusal(odd, "v100", {}, "12 experts cannot be dealt to 8 ranks alike");
  EXPECT_THAT([] { (void)find_mixture_model("gpt2-x-moe"); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no model with mixtures 'gpt2-x-moe'")));
}

}  // namespace
}  // namespace dear::methods::moe::mixtures_test
