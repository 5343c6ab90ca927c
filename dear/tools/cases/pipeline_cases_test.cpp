#include "dear/tools/cases/pipeline_cases.h"

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/platform/cluster/sites.h"
#include "dear/tools/cases/pipeline_picture.h"
#include "dear/tools/cases/pipeline_plan.h"
#include "dear/workload/zoo/models.h"

namespace dear::cases::pipeline_cases_test {
namespace {

namespace pipeline = methods::pipeline;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// One micro-batch of two layers of 1e9 operations each way on devices of 1e9 a second: forward 1 s, backward
// 2 s. 1,000 bytes take a link of 1,000 bytes a second 1 s, and 0.5 s to arrive.
constexpr const char* kTwoLayers =
    R"({"format": "dear-operators", "version": 1, "name": "two layers", "operators": [
  {"name": "first", "inputs": [], "forward_work": 1e9, "input_gradient_work": 0, "weight_gradient_work": 2e9,
   "parameter_bytes": 400, "output_bytes": 1000},
  {"name": "second", "inputs": ["first"], "forward_work": 1e9, "parameter_bytes": 400, "output_bytes": 4}]})";
constexpr const char* kTwoDevices =
    R"({"format": "dear-pair-cluster", "version": 1, "name": "two rooms", "devices": [
  {"name": "a", "flops_per_second": 1e9, "memory_bytes": 1000000}, {"name": "b", "flops_per_second": 1e9, "memory_bytes": 1000000}],
  "bytes_per_second": [[null, 1000], [1000, null]], "latency_seconds": [[null, 0.5], [0.5, null]]})";

class Files {
 public:
  Files() : folder_(std::filesystem::path(::testing::TempDir()) / "pipeline_cases") {
    std::filesystem::create_directories(folder_);
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    os::write_file_atomically((folder_ / name).string(), text);
    return (folder_ / name).string();
  }

 private:
  std::filesystem::path folder_;
};

PipelineNames small(const Files& files, int micro_batches) {
  return {.model = files.write("model.json", kTwoLayers),
          .cluster = files.write("cluster.json", kTwoDevices),
          .micro_batches = micro_batches};
}

// Alone a micro-batch takes 1 s forward, 1.5 s to the other device, 3 s there, 1.5 s back and 2 s backward.
TEST(PipelineCases, TakeWhatAPencilSays) {
  const Files files;
  const PipelineJob job(small(files, 1));
  const PipelineCase one = play_plan(job, pipeline::PlanOptions{.micro_batches = 1});
  EXPECT_NEAR(one.seconds(), 9, 1e-9);
  EXPECT_NEAR(one.bubble(), 1 - 6.0 / 18, 1e-9);
  EXPECT_EQ(one.sent_bytes(), 2000);
  EXPECT_EQ(activations_over(one, 0).bytes, 1000);
  EXPECT_NEAR(gradients_over(one, 0).transfer.busy_seconds, 1, 1e-12);
  // Parameters, gradients and two states of AdamW, 1,600 bytes; each keeps its output, and the second also
  // what it reads.
  EXPECT_THAT(one.peak_bytes, ElementsAre(1600 + 1000, 1600 + 1000 + 4));
  EXPECT_EQ(job.parameter_bytes(), 800);
  EXPECT_EQ(describe(job),
            "two layers: 2 operators, 800 B of parameters, 1 micro-batch of the file's size; "
            "two rooms: 2 devices in 1 site");
  const PipelineBounds bounds = bounds_of(one);
  EXPECT_NEAR(bounds.compute_seconds, 3, 1e-12);
  EXPECT_NEAR(bounds.link_seconds, 1, 1e-12);
  EXPECT_NEAR(bounds.first_seconds, 9, 1e-12);
  EXPECT_EQ(bounds.exchange_seconds, 0);
}

TEST(PipelineCases, AreThoseOfTheMethod) {
  std::deque<PipelineJob> jobs;
  jobs.emplace_back(PipelineNames{.model = "resnet101", .cluster = "two-sites"});
  jobs.emplace_back(PipelineNames{.model = "gpt2",
                                  .cluster = "three-sites",
                                  .batch = 48,
                                  .size = 256,
                                  .dtype = "fp32",
                                  .micro_batches = 24,
                                  .optimizer_states = 1});
  std::deque<pipeline::OperatorDag> dags;
  dags.push_back(pipeline::operators_of(zoo::find_model("resnet101"), {.batch = 64, .micro_batches = 8}));
  dags.push_back(pipeline::operators_of(
      zoo::find_model("gpt2"), {.batch = 48, .micro_batches = 24, .size = 256, .dtype = DType::f32}));
  const std::vector<PairCluster> clusters{find_pair_cluster("two-sites"), find_pair_cluster("three-sites")};
  const PipelinePlanNames names{.planners = {"op-fence", "equal-work"},
                                .schedules = {"gpipe", "interleaved"},
                                .compressions = {"none", "ada-top-k"},
                                .ratio = 50};
  const PlayedPlans plans = play_plans(jobs, names);
  EXPECT_THAT(plans.left_out, IsEmpty());
  ASSERT_THAT(plans.cases, SizeIs(16));
  std::size_t at = 0;
  for (std::size_t j = 0; j < 2; ++j) {
    const pipeline::StageCosts costs(dags[j], clusters[j], {.copies_of_parameters = j == 0 ? 4.0 : 3.0});
    EXPECT_EQ(jobs[j].dag.digest(), dags[j].digest());
    for (const auto method : {pipeline::PlanMethod::op_fence, pipeline::PlanMethod::equal_work})
      for (const auto schedule : {pipeline::ScheduleKind::gpipe, pipeline::ScheduleKind::interleaved})
        for (const auto rule : {pipeline::CompressionRule::none, pipeline::CompressionRule::ada_top_k}) {
          const pipeline::Plan plan =
              make_plan(costs, {.method = method,
                                .schedule = schedule,
                                .micro_batches = j == 0 ? 8 : 24,
                                .stages_of_device = schedule == pipeline::ScheduleKind::interleaved ? 2 : 1,
                                .compression = {.rule = rule, .ratio = 50}});
          const PipelineCase& one = plans.cases[at++];
          EXPECT_EQ(one.plan, plan);
          EXPECT_EQ(one.seconds(), play(times_of(plan, costs)).iteration_seconds);
          EXPECT_EQ(one.peak_bytes, peak_bytes(plan, costs));
          EXPECT_EQ(one.planner, name_of(method));
        }
  }
  const std::vector<double> over_first = speed_ups(plans.cases);
  EXPECT_EQ(over_first[0], 1);
  EXPECT_EQ(over_first[8], 1);
  EXPECT_NEAR(over_first[9] * plans.cases[9].seconds(), plans.cases[8].seconds(), 1e-9);
  const auto json = nlohmann::json::parse(to_json(plans));
  ASSERT_EQ(json.size(), 16U);
  EXPECT_EQ(json[1]["compression"], "ada-top-k, 50");
  EXPECT_EQ(json[1]["iteration_seconds"], plans.cases[1].seconds());
  EXPECT_EQ(json[8]["micro_batches"], 24);
}

TEST(PipelineCases, RoundUpABatchThatNobodyGives) {
  const auto batch = [](const std::string& model, int micro_batches) {
    return PipelineJob({.model = model, .cluster = "two-sites", .micro_batches = micro_batches}).batch;
  };
  EXPECT_EQ(batch("gpt2-xl", 8), 8);
  EXPECT_EQ(batch("resnet101", 8), 64);
  EXPECT_EQ(batch("resnet101", 24), 72);
  EXPECT_EQ(usual_batch("gpt2-xl", {8, 12}), 24);
  EXPECT_EQ(usual_batch("resnet101", {8, 12}), 72);
  EXPECT_THAT([] { (void)usual_batch("gpt2", {1021, 1031, 1033}); },
              ThrowsMessage<ConfigError>(HasSubstr("a batch of")));
}

TEST(PipelineCases, NameSitesByTheirDevices) {
  EXPECT_THAT(site_names(find_pair_cluster("two-sites")),
              ElementsAre("a", "a", "a", "a", "b", "b", "b", "b"));
  PairCluster cluster = find_pair_cluster("fusionllm-48");
  std::vector<std::string> sites = site_names(cluster);
  for (std::size_t i = 0; i < sites.size(); ++i)
    EXPECT_THAT(cluster.devices[i].name, StartsWith(sites[i] + "-"));
  // Names that say nothing give numbers.
  for (std::size_t i = 0; i < sites.size(); ++i) cluster.devices[i].name = "gpu" + std::to_string(i);
  std::map<std::string, std::string> number_of;
  const std::vector<std::string> numbers = site_names(cluster);
  for (std::size_t i = 0; i < sites.size(); ++i)
    EXPECT_EQ(number_of.emplace(sites[i], numbers[i]).first->second, numbers[i]);
  EXPECT_THAT(number_of, SizeIs(6));
}

TEST(PipelineCases, AreDrawnBySeed) {
  const PipelineJob drawn({.model = "gpt2", .cluster = "fusionllm-48", .seed = 7});
  EXPECT_EQ(drawn.cluster.devices, random_sites({.seed = 7}).devices);
  EXPECT_EQ(drawn.cluster.bytes_per_second, random_sites({.seed = 7}).bytes_per_second);
}

TEST(PipelineCases, HaveALaneForEachDeviceAndLink) {
  const Files files;
  const PipelineJob job(small(files, 2));
  const PipelineCase one = play_plan(job, pipeline::PlanOptions{.micro_batches = 2});
  std::map<std::pair<int, std::string>, int> lanes;
  for (const Span& span : trace_of(one).spans) ++lanes[{span.rank, span.lane}];
  using Lanes = std::map<std::pair<int, std::string>, int>;
  EXPECT_EQ(lanes,
            (Lanes{{{0, "compute"}, 4}, {{0, "link to b"}, 2}, {{1, "compute"}, 4}, {{1, "link to a"}, 2}}));
  EXPECT_THAT(timeline_of(one), AllOf(HasSubstr(">0 a<"), HasSubstr(">1 b link to a<")));
  EXPECT_THAT(plot({one}, "title"), HasSubstr("op-fence, 1f1b<"));
  EXPECT_THAT(picture_of(one), AllOf(HasSubstr("1 operator from second, 400 B"), HasSubstr("1000 B, 1 s")));
}

TEST(PipelineCases, LeaveOutWhatCannotBeMade) {
  std::deque<PipelineJob> jobs;
  jobs.emplace_back(PipelineNames{.model = "gpt2", .cluster = "three-sites"});
  const PlayedPlans plans = play_plans(jobs, {.schedules = {"interleaved", "1f1b"}});
  ASSERT_THAT(plans.left_out, SizeIs(1));
  EXPECT_THAT(plans.left_out.front().reason, HasSubstr("8 micro-batches on 24 devices"));
  ASSERT_THAT(plans.cases, SizeIs(1));
  EXPECT_THAT([&] { (void)play_plans(jobs, {.schedules = {"interleaved"}}); },
              ThrowsMessage<ConfigError>(HasSubstr("8 micro-batches on 24 devices")));
}

TEST(PipelineCases, RefuseWhatCannotBe) {
  const Files files;
  const PipelineNames good{.model = "gpt2", .cluster = "two-sites"};
  const auto refusal = [&](auto change) {
    PipelineNames names = good;
    change(names);
    try {
      const PipelineJob job(names);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal([](auto& n) { n.model = "gpt3"; }), HasSubstr("there is no model 'gpt3'"));
  EXPECT_THAT(refusal([](auto& n) { n.model = "bert-large"; }), HasSubstr("take a GPT-2 or ResNet"));
  EXPECT_THAT(refusal([](auto& n) { n.cluster = "10gbe"; }), HasSubstr("two-sites"));
  EXPECT_THAT(refusal([](auto& n) { n.seed = 3; }), HasSubstr("a seed is for a cluster that is drawn"));
  EXPECT_THAT(refusal([](auto& n) { n.batch = 12; }), HasSubstr("a batch of 12 cannot be divided into 8"));
  EXPECT_THAT(refusal([](auto& n) { n.batch = -8; }), HasSubstr("a batch of -8"));
  EXPECT_THAT(refusal([](auto& n) { n.micro_batches = 0; }), HasSubstr("micro-batches of 0"));
  EXPECT_THAT(refusal([](auto& n) { n.size = 2000; }), HasSubstr("a sequence of 2000"));
  EXPECT_THAT(refusal([](auto& n) { n.dtype = "int32"; }), HasSubstr("choose fp32, fp16 or bf16"));
  EXPECT_THAT(refusal([](auto& n) { n.optimizer_states = -1; }), HasSubstr("optimiser's states"));
  EXPECT_THAT(refusal([&](auto& n) {
                n = small(files, 1);
                n.batch = 8;
              }),
              HasSubstr("are for models by name"));
  const auto refused_plan = [](const PipelinePlanNames& names) {
    try {
      (void)find_plans(names, 8);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused_plan({.planners = {"op-fense"}}), HasSubstr("did you mean op-fence"));
  EXPECT_THAT(refused_plan({.schedules = {"2f2b"}}), HasSubstr("1f1b"));
  EXPECT_THAT(refused_plan({.compressions = {"topk"}}), HasSubstr("did you mean top-k"));
  EXPECT_THAT(refused_plan({.ratio = 0.5}), HasSubstr("ratio of a compression is 0.5"));
  EXPECT_THAT(refused_plan({.devices = "some"}), HasSubstr("all, fastest"));
  EXPECT_THAT(refused_plan({.planners = {"equal-work"}, .devices = "fastest"}), HasSubstr("only op-fence"));
  EXPECT_THAT(refused_plan({.stages_per_device = 3}), HasSubstr("schedule interleaved"));
}

TEST(PipelineAnswer, IsThePlanBesideEachPlannerWithAndWithoutCompression) {
  const PipelineJob job({.model = "resnet101", .cluster = "two-sites"});
  const PipelineAnswer answer = plan_pipeline(job, {});
  EXPECT_EQ(answer.plan.plan, pipeline::make_plan(job.costs, {.micro_batches = 8}));
  ASSERT_THAT(answer.rivals, SizeIs(8));
  for (std::size_t i = 1; i < 8; ++i) EXPECT_GE(answer.rivals[i].seconds(), answer.rivals[i - 1].seconds());
  std::map<std::string, int> planners;
  for (const PipelineCase& rival : answer.rivals) {
    ++planners[rival.planner];
    const pipeline::CompressionRule rule =
        rival.compression == "none" ? pipeline::CompressionRule::none : pipeline::CompressionRule::ada_top_k;
    const pipeline::Plan plan =
        pipeline::make_plan(job.costs, {.method = pipeline::find_plan_method(rival.planner),
                                        .micro_batches = 8,
                                        .compression = {.rule = rule}});
    EXPECT_EQ(rival.plan, plan);
  }
  EXPECT_EQ(planners, (std::map<std::string, int>{
                          {"op-fence", 2}, {"plain-dp", 2}, {"equal-number", 2}, {"equal-work", 2}}));
  // The only links between the sites are those that the pipeline passes.
  EXPECT_EQ(answer.plan.device_of(answer.bounds.link_from)[0] == 'a',
            answer.plan.device_of(answer.bounds.link_to)[0] == 'b');
  EXPECT_THAT(answer.why, Contains(AllOf(StartsWith("What the link"), HasSubstr("bounds the iteration"))));
  EXPECT_THAT(answer.verdict, Contains(HasSubstr("times as fast as equal-number without compression")));
  const pipeline::Plan fastest =
      pipeline::make_plan(job.costs, {.micro_batches = 8, .devices = pipeline::DeviceUse::fastest});
  EXPECT_EQ(fastest.places(), 4);
  EXPECT_THAT(answer.verdict, Contains(StartsWith("4 of the 8 devices alone are ")));
  EXPECT_THAT(plan_pipeline(job, {.devices = "fastest"}).verdict, Not(Contains(HasSubstr("alone"))));
  const auto json = nlohmann::json::parse(to_json(answer));
  EXPECT_EQ(json["rivals"].size(), 8U);
  EXPECT_EQ(json["links"].size(), 7U);
  std::int64_t operators = 0, parameters = 0;
  for (const auto& stage : json["stages_of_plan"]) {
    operators += stage["operators"].get<std::int64_t>();
    parameters += stage["parameter_bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(operators, static_cast<std::int64_t>(job.dag.size()));
  EXPECT_EQ(parameters, job.parameter_bytes());
}

TEST(PipelineAnswer, SaysWhatBoundsAnIteration) {
  const auto why = [](const PipelineNames& names, const PipelinePlanNames& plans = {}) {
    return plan_pipeline(PipelineJob(names), plans).why.back();
  };
  // Devices as listed begin at one site and end at the other.
  EXPECT_THAT(why({.model = "gpt2-xl", .cluster = "two-sites"}, {.planners = {"plain-dp"}}),
              HasSubstr("gradients of tied parameters"));
  EXPECT_THAT(why({.model = "resnet101", .cluster = "two-sites", .micro_batches = 1}),
              HasSubstr("more micro-batches"));
  EXPECT_THAT(why({.model = "resnet101", .cluster = "two-sites", .batch = 4096, .micro_batches = 512},
                  {.compressions = {"top-k"}, .ratio = 1000}),
              AllOf(StartsWith("What "), HasSubstr(" computes bounds")));
  EXPECT_THAT(
      [] {
        (void)plan_pipeline(PipelineJob({.model = "gpt2", .cluster = "two-sites"}),
                            {.schedules = {"gpipe", "1f1b"}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("2 were asked for")));
}

// OP-Fence heeds that one device has little memory; equal cuts look at none.
TEST(PipelineAnswer, LeavesOutRivalsThatDoNotFit) {
  const Files files;
  PairCluster cluster = find_pair_cluster("two-sites");
  cluster.devices[2].memory_bytes = std::int64_t{700} << 20;
  const PipelineJob job(
      {.model = "gpt2-medium", .cluster = files.write("little.json", to_json(cluster)), .batch = 32});
  const PipelineAnswer answer = plan_pipeline(job, {});
  ASSERT_THAT(answer.left_out, SizeIs(4));
  EXPECT_EQ(answer.rivals.size(), 4U);
  for (const LeftOutPlan& one : answer.left_out)
    EXPECT_THAT(one, AllOf(::testing::Field(&LeftOutPlan::what, StartsWith("equal-")),
                           ::testing::Field(&LeftOutPlan::reason, HasSubstr("'a2' needs"))));
}

}  // namespace
}  // namespace dear::cases::pipeline_cases_test
