#include "dear/tools/cases/mixture_cases.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cluster/presets.h"

namespace dear::cases::mixture_cases_test {
namespace {

using methods::moe::Instruction;
using methods::moe::InstructionGraph;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<MixtureScenario> scenarios_of(const std::string& model, ScenarioOptions options,
                                          const MixtureNames& names = {}) {
  options.models = {model};
  if (options.clusters.empty()) options.clusters = {"p3dn-64"};
  if (options.ranks.empty()) options.ranks = {16};
  return mixture_scenarios(options, names);
}

struct Oracle {
  double iteration = 0, exchanged = 0, exposed_exchanged = 0, exposed = 0;
};
// Four iterations: each instruction begins when all that it waits for and the one before it on its lane have
// ended. The last is taken between the ends of the compute lane, and cut into pieces in which nothing begins
// or ends.
Oracle two_lanes(const InstructionGraph& graph) {
  struct Busy {
    double begin, end;
    bool network, exchange;
  };
  std::vector<Busy> busy;
  std::vector<double> end(graph.size()), before(graph.size());
  double lane_end[2] = {}, from = 0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    from = lane_end[0];
    before = end;
    for (const auto id : graph.order()) {
      const Instruction& one = graph[id];
      const bool network = one.kind != methods::moe::Kind::compute &&
                           one.kind != methods::moe::Kind::update &&
                           one.kind != methods::moe::Kind::weight_gradient;
      double begin = lane_end[network ? 1 : 0];
      for (const auto other : graph.predecessors(id)) begin = std::max(begin, end[other]);
      if (iteration > 0)
        for (const auto other : one.after_previous) begin = std::max(begin, before[other]);
      end[id] = lane_end[network ? 1 : 0] = begin + one.seconds;
      busy.push_back({begin, end[id], network, one.kind == methods::moe::Kind::all_to_all});
    }
  }
  std::map<double, int[3]> changes;  // of busy lanes: compute, network, all-to-alls
  changes[from];
  for (const Busy& one : busy) {
    const double begin = std::clamp(one.begin, from, lane_end[0]),
                 until = std::clamp(one.end, from, lane_end[0]);
    for (const auto& [at, by] : {std::pair(begin, 1), std::pair(until, -1)}) {
      changes[at][one.network ? 1 : 0] += by;
      changes[at][2] += one.exchange ? by : 0;
    }
  }
  Oracle oracle{.iteration = lane_end[0] - from};
  int now[3] = {};
  for (auto at = changes.begin(); std::next(at) != changes.end(); ++at) {
    for (int i = 0; i < 3; ++i) now[i] += at->second[i];
    const double seconds = std::next(at)->first - at->first;
    if (now[2] > 0) oracle.exchanged += seconds;
    if (now[2] > 0 && now[0] == 0) oracle.exposed_exchanged += seconds;
    if (now[1] > 0 && now[0] == 0) oracle.exposed += seconds;
  }
  return oracle;
}

TEST(MixtureCases, TakeWhatTwoLanesTake) {
  const std::vector<MixtureScenario> all = scenarios_of("gpt2-s-moe", {});
  ASSERT_EQ(all.size(), 1U);
  const std::vector<MixtureCase> cases = simulate(all, find_overlaps({}));
  ASSERT_EQ(cases.size(), 5U);
  for (const MixtureCase& one : cases) {
    SCOPED_TRACE(one.overlap->name);
    const methods::moe::Times& times = one.passed.times;
    const Oracle oracle = two_lanes(one.passed.graph);
    EXPECT_NEAR(times.iteration_seconds, oracle.iteration, 1e-9);
    EXPECT_NEAR(times.all_to_all_seconds, oracle.exchanged, 1e-9);
    EXPECT_NEAR(times.exposed_all_to_all_seconds, oracle.exposed_exchanged, 1e-9);
    EXPECT_NEAR(times.exposed_seconds, oracle.exposed, 1e-9);
    EXPECT_NEAR(one.speed_up() * one.seconds(), cases[1].seconds(), 1e-12);
  }
  EXPECT_LT(cases[4].seconds(), cases[1].seconds());
  EXPECT_LT(cases[1].seconds(), cases[0].seconds());
}

// In the half precision of the device, with the batch that is said for it, unless another is asked for.
TEST(MixtureCases, AreThoseOfTheMethod) {
  const std::vector<MixtureScenario> usual = scenarios_of("gpt2-s-moe", {});
  const ScenarioOptions asked{.clusters = {"10gbe"},
                              .ranks = {8},
                              .model = {.device = "a100", .batch = 12, .sample_size = 256, .dtype = "fp32"}};
  const std::vector<MixtureScenario> other =
      scenarios_of("gpt2-l-moe", asked, {.gate = "batch-prioritized", .capacity_factor = 2});
  auto short_model = methods::moe::find_mixture_model("gpt2-l-moe");
  short_model.length = 256;
  const std::vector<std::pair<const MixtureScenario*, methods::moe::MixtureJob>> jobs{
      {&usual[0], make_job(methods::moe::find_mixture_model("gpt2-s-moe"), zoo::find_device("v100"),
                           find_cluster("p3dn-64", 16), {.batch = 16, .dtype = DType::f16})},
      {&other[0], make_job(short_model, zoo::find_device("a100"), find_cluster("10gbe", 8),
                           {.batch = 12,
                            .dtype = DType::f32,
                            .capacity_factor = 2,
                            .gate = methods::moe::Gate::by_importance})}};
  for (const auto& [scenario, job] : jobs) {
    const MixtureCase one = simulate(*scenario, find_overlaps({.overlaps = {"lancet"}})).front();
    const methods::moe::Passed passed =
        run(job.graph, methods::moe::find_passes("lancet"), job.part_seconds, {.iterations = 4});
    EXPECT_EQ(one.passed.times.iteration_seconds, passed.times.iteration_seconds);
    EXPECT_EQ(one.passed.graph.digest(), passed.graph.digest());
    const methods::moe::Passed experts =
        run(job.graph, methods::moe::find_passes("experts"), job.part_seconds, {.iterations = 4});
    EXPECT_EQ(one.experts_seconds, experts.times.iteration_seconds);
  }
  // A gate that is not cut begins no range's inside.
  for (const CutNames& cut : cuts_of(simulate(other[0], find_overlaps({.overlaps = {"partition"}})).front()))
    EXPECT_THAT(cut.first, ::testing::Not(HasSubstr("gate")));
}

TEST(MixtureCases, AreEveryModelOnEveryClusterByEveryOverlap) {
  const std::vector<MixtureScenario> all = mixture_scenarios({.models = {"gpt2-s-moe", "deepseek-moe-16b"},
                                                              .clusters = {"p3dn-64", "10gbe"},
                                                              .ranks = {8, 16},
                                                              .model = {.batch = 2}},
                                                             {});
  const std::vector<MixtureCase> cases = simulate(all, find_overlaps({.overlaps = {"dw", "unoptimised"}}));
  const nlohmann::json rows = nlohmann::json::parse(to_json(cases));
  ASSERT_EQ(rows.size(), 16U);
  EXPECT_EQ(rows[1]["overlap"], "unoptimised");
  EXPECT_EQ(rows[3]["ranks"], 16);
  EXPECT_EQ(rows[3]["experts"], 32);
  EXPECT_EQ(rows[4]["cluster"], "10gbe");
  EXPECT_EQ(rows[15]["model"], "deepseek-moe-16b");
  EXPECT_EQ(rows[15]["experts"], 64);
  EXPECT_EQ(rows[15]["all_to_alls"], 4 * 27);
  EXPECT_EQ(rows[15]["batch"], 2);
  EXPECT_THAT(describe(all.back()), HasSubstr("27 of them with 64 experts, 4 on a rank and 6 for a token"));
  const std::string svg = plot(cases, "mixtures");
  EXPECT_THAT(svg, AllOf(HasSubstr("gpt2-s-moe on 10gbe, 16 ranks"), HasSubstr("unoptimised")));
}

TEST(MixtureCases, CutsAreNamed) {
  const std::vector<MixtureScenario> all = scenarios_of("gpt2-s-moe", {});
  const std::vector<MixtureCase> cases =
      simulate(all, find_overlaps({.overlaps = {"experts", "partition", "lancet"}}));
  EXPECT_TRUE(cuts_of(cases[0]).empty());
  EXPECT_GT(cases[0].passed.most_parts(), 1);
  for (const MixtureCase& one : {cases[1], cases[2]}) {
    const std::vector<CutNames> cuts = cuts_of(one);
    ASSERT_FALSE(cuts.empty());
    // Each has parts of what it begins and ends with, as many as it says.
    for (const CutNames& cut : cuts)
      for (const std::string& name : {cut.first, cut.last})
        EXPECT_EQ(
            std::count_if(one.passed.graph.instructions().begin(), one.passed.graph.instructions().end(),
                          [&](const Instruction& part) { return part.name == name; }),
            cut.parts)
            << name;
  }
}

TEST(MixtureCases, TracesHaveTwoLanes) {
  const std::vector<MixtureScenario> all = scenarios_of("gpt2-s-moe", {});
  const MixtureCase one = simulate(all, find_overlaps({.overlaps = {"lancet"}})).front();
  const Trace trace = trace_of(one);
  EXPECT_EQ(trace.title, "dear simulate, gpt2-s-moe, overlap lancet, 16 ranks");
  EXPECT_THAT(trace.network, HasSubstr("p3dn-64"));
  std::map<std::string, double> ends;
  std::map<std::string, int> exchanges;
  for (const Span& span : trace.spans) {
    EXPECT_EQ(span.rank, 0);
    EXPECT_GE(span.begin_seconds, ends[span.lane] - 1e-12) << span.name;
    ends[span.lane] = span.end_seconds;
    if (span.name.find("all-to-all") != std::string::npos) ++exchanges[span.lane];
    EXPECT_EQ(span.activity == Activity::communication, span.lane == "network") << span.name;
  }
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends.count("compute") + ends.count("network"), 2U);
  ASSERT_EQ(exchanges.size(), 1U);
  EXPECT_GT(exchanges["network"], 4 * 24);  // of four iterations, some in parts
}

TEST(MixtureCases, OneRankSendsNothing) {
  const std::vector<MixtureScenario> all = scenarios_of("gpt2-s-moe", {.ranks = {1}});
  for (const MixtureCase& one : simulate(all, find_overlaps({}))) {
    EXPECT_EQ(one.passed.times.all_to_all_seconds, 0);
    EXPECT_EQ(one.passed.times.exposed_seconds, 0);
  }
}

// A launch goes before each all-to-all.
TEST(MixtureCases, AllToAllsAreLaunched) {
  Cluster cluster = find_cluster("p3dn-64", 16);
  const auto& model = methods::moe::find_mixture_model("gpt2-s-moe");
  const zoo::Device& device = zoo::find_device("v100");
  const double without = make_job(model, device, cluster).all_to_all_seconds;
  cluster.software.launch_seconds = 3e-3;
  EXPECT_NEAR(make_job(model, device, cluster).all_to_all_seconds, without + 3e-3, 1e-9);
}

TEST(MixtureCases, RefuseWhatCannotBe) {
  const auto refused = [](const std::string& model, const ScenarioOptions& options, const MixtureNames& names,
                          const char* text) {
    EXPECT_THAT([&] { scenarios_of(model, options, names); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  refused("gpt2-s-moe", {}, {.gate = "top2"}, "choose switch or batch-prioritized");
  refused("gpt2-s-moe", {}, {.capacity_factor = 0}, "factor");
  refused("gpt2-s-moe", {}, {.capacity_factor = 1e300}, "give at most 32");
  refused("gpt2-s-moe", {.model = {.batch = 1 << 20, .sample_size = 1 << 20}}, {}, "too many for a rank");
  refused("gpt2-s-moe", {.clusters = {"10gbe"}, .ranks = {8192}}, {}, "give at most 4096");
  refused("gpt2-s-moe", {.model = {.device = "h100"}}, {}, "nobody said with which batch");
  refused("gpt2-s-moe", {.model = {.device = "abacus"}}, {}, "abacus");
  refused("gpt2-s-moe", {.model = {.sample_size = -3}}, {}, "a sequence of -3 tokens");
  refused("gpt2-s-moe", {.model = {.dtype = "int8"}}, {}, "int8");
  refused("deepseek-moe-16b", {.clusters = {"10gbe"}, .ranks = {3}, .model = {.batch = 1}}, {}, "64 experts");
  EXPECT_THAT([] { find_overlaps({.overlaps = {"lancets"}}); },
              ThrowsMessage<ConfigError>(HasSubstr("did you mean lancet?")));
}

TEST(MixtureCases, RefuseClustersWhoseRanksDiffer) {
  for (const char* const what : {"stragglers", "interference"}) {
    Cluster cluster = find_cluster("10gbe", 4);
    if (what == std::string("stragglers"))
      cluster.stragglers = {{.rank = 1, .slowdown = 2}};
    else
      cluster.interference.computation = 1.1;
    const std::string file = ::testing::TempDir() + "mixtures on a cluster.json";
    write_cluster(cluster, file);
    EXPECT_THAT(
        [&] { scenarios_of("gpt2-s-moe", {.clusters = {file}, .ranks = {4}, .model = {.batch = 4}}); },
        ThrowsMessage<ConfigError>(AllOf(HasSubstr(what), HasSubstr("take a cluster without"))));
  }
}

// A workload has layers and gradients, and so do policies, buckets and tuning: none of them knows tokens.
TEST(MixtureCases, AreNoWorkloads) {
  for (const char* name : {"gpt2-s-moe", "gpt2-l-moe", "deepseek-moe-16b"}) {
    EXPECT_TRUE(is_mixture(name));
    EXPECT_THAT([&] { find_workload(std::string(name)); },
                ThrowsMessage<ConfigError>(HasSubstr("only `dear simulate` and `dear plan` take it")));
    EXPECT_THAT([&] { scenarios({.models = {std::string(name)}, .clusters = {"10gbe-64"}}); },
                ThrowsMessage<ConfigError>(HasSubstr("all-to-alls")));
  }
  EXPECT_FALSE(is_mixture("gpt2"));
}

}  // namespace
}  // namespace dear::cases::mixture_cases_test
