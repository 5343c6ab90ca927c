#include "studies/paper/headline.h"

#include "studies/paper/paper_tables.h"
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/calibration.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace dear::studies::headline_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Published published() { return read_published(dear::testing::source_file("docs/study/published.json")); }

class HeadlineOfTheProject : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { headline = explain(published()); }
  static Headline headline;
};
Headline HeadlineOfTheProject::headline;

TEST_F(HeadlineOfTheProject, EveryCostMakesOfTheFittedModelWhatWasPublished) {
  ASSERT_GE(headline.costs.size(), 2U);
  ASSERT_STREQ(kPaperModels[0], headline.figure.model.c_str());
  for (const FittedCost& cost : headline.costs) {
    ASSERT_EQ(cost.seconds.size(), kPaperModels.size());
    EXPECT_NEAR(cost.seconds[0], headline.figure.seconds, 1e-6) << cost.of;
  }
}

// With a pencil: buffers travel before the forward pass, when nothing else does, and each costs as much.
TEST_F(HeadlineOfTheProject, BuffersAreAddedOneByOneAndNothingHidesThem) {
  const FittedCost& buffers = headline.costs.front();
  const Cluster cluster = find_cluster("calibrated-" + headline.figure.cluster);
  for (std::size_t i = 0; i < kPaperModels.size(); ++i) {
    const Workload workload =
        zoo::make_workload(zoo::find_model(kPaperModels[i]), zoo::find_device(cluster.device));
    EXPECT_NEAR(buffers.seconds[i] - headline.without[i],
                static_cast<double>(workload.buffers) * buffers.constant.value(), 1e-9)
        << kPaperModels[i];
  }
}

TEST_F(HeadlineOfTheProject, GivesTheConstantOfThePreset) {
  EXPECT_NEAR(headline.costs.front().constant.value() / kBufferSecondsOnEthernet, 1, 0.01);
  EXPECT_EQ(find_cluster("calibrated-10gbe-64").software.buffer_seconds, kBufferSecondsOnEthernet);
  EXPECT_EQ(find_cluster("calibrated-100gbib-64").software.buffer_seconds, 0);
}

TEST_F(HeadlineOfTheProject, SaysWhichCostAgreesWithWhatIsReported) {
  EXPECT_TRUE(headline.costs.front().gives(headline.reported));
  EXPECT_THAT(conclusion_of(headline), HasSubstr("agree with " + headline.costs.front().of));
  const std::string report = report_of(headline);
  EXPECT_THAT(report, AllOf(HasSubstr("313.7"), HasSubstr("**yes**"), HasSubstr("83 %")));
  for (const FittedCost& cost : headline.costs) EXPECT_THAT(report, HasSubstr("| " + cost.of + " |"));
}

// Each conclusion has its opposite.
TEST(OtherNetworks, MayCostAsMuchOrNot) {
  const OtherNetwork less{.cluster = "100gbib-64", .reported = 0.15, .same_gain = 0.9, .most_seconds = 1e-4};
  EXPECT_THAT(
      conclusion_of(less, "10gbe-64", 3e-4),
      AllOf(HasSubstr("at most 0.100 ms. So it is a cost of 10gbe-64, not of every network"),
            HasSubstr("`calibrated-10gbe-64` has 0.375 ms a buffer, `calibrated-100gbib-64` has none")));
  OtherNetwork as_much = less;
  as_much.same_gain = 0.1;
  as_much.most_seconds = 4e-4;
  EXPECT_THAT(conclusion_of(as_much, "10gbe-64", 3e-4),
              AllOf(HasSubstr("may cost as much. So it need not be a cost of 10gbe-64 alone"),
                    Not(HasSubstr("at most"))));
}

TEST(FastestRivals, AreTooFastOrNot) {
  FastestRival rival{.policy = "horovod", .models = 3, .too_fast_by = {{"resnet50", 0.9}, {"vgg16", 1.2}}};
  EXPECT_THAT(conclusion_of(rival, "10gbe-64"),
              AllOf(HasSubstr("is horovod, on 3 of 5 models"),
                    HasSubstr("0.90 times as much with resnet50, 1.20 times as much with vgg16"),
                    HasSubstr("comes out too small here")));
  rival.too_fast_by.pop_back();
  EXPECT_THAT(conclusion_of(rival, "10gbe-64"), HasSubstr("does not come out too small here"));
  rival.too_fast_by.clear();
  EXPECT_THAT(conclusion_of(rival, "10gbe-64"), HasSubstr("no throughput of it on 10gbe-64 is published"));
}

TEST_F(HeadlineOfTheProject, KnowsTheFastestRival) {
  int fastest = 0;
  const Cluster cluster = find_cluster("calibrated-" + headline.figure.cluster, headline.figure.ranks);
  const cost::CollectiveTimes times = cost::times_on(cluster, {.algorithm = "nccl"});
  for (const char* const model : kPaperModels) {
    const Workload workload = zoo::make_workload(zoo::find_model(model), zoo::find_device(cluster.device));
    const auto seconds = [&](std::string_view name) {
      const Policy& policy = find_policy(name);
      return sim::iteration_seconds(policy, workload, {policy.usual_grouping(workload, times)}, cluster,
                                    times)
          .front();
    };
    const double own = seconds(headline.fastest.policy);
    fastest += std::all_of(kComparedInThePaper.begin(), kComparedInThePaper.end(),
                           [&](const char* rival) { return own <= seconds(rival); });
  }
  EXPECT_EQ(headline.fastest.models, fastest);
  EXPECT_GE(fastest, 2);  // of five models and five rivals
  EXPECT_EQ(headline.fastest.too_fast_by.size(), 2U);
  EXPECT_THAT(report_of(headline), HasSubstr(conclusion_of(headline.fastest, headline.figure.cluster)));
}

// The verdict can fail: with another headline, and with gains that miss the one there is.
TEST_F(HeadlineOfTheProject, SaysWhereNoCostAgrees) {
  Headline other = headline;
  other.reported = 3;
  EXPECT_THAT(conclusion_of(other),
              AllOf(StartsWith("None of these costs gives the 300 %"), HasSubstr("nearest")));
  EXPECT_THAT(report_of(other), Not(HasSubstr("**yes**")));
  other = headline;
  other.costs.front().usual_gain = 0.9;
  EXPECT_THAT(conclusion_of(other), StartsWith("None of these costs gives the 83 %"));
  other = headline;
  other.costs.front().planned_gain = 0.8;
  other.costs.front().usual_gain = 0.5;
  EXPECT_THAT(conclusion_of(other), StartsWith("None of these costs gives the 83 %"));
}

// It is of another model: what it takes with nothing added is its own. It has no buffers, so they explain
// nothing, and the study goes on.
TEST(Headline, OfAModelWithoutBuffersSaysThatTheyCannotExplainIt) {
  Published of_bert = published();
  of_bert.iterations[0].model = "bert-base";
  of_bert.iterations[0].seconds = 1.2;
  of_bert.iterations[0].source = "a talk";
  const Headline headline = explain(of_bert);
  EXPECT_EQ(headline.figure_seconds, headline.without[3]);
  EXPECT_NE(headline.figure_seconds, headline.without[0]);
  EXPECT_FALSE(headline.costs[0].constant);
  EXPECT_FALSE(headline.costs[1].constant);
  EXPECT_TRUE(headline.costs[2].constant);
  EXPECT_NEAR(headline.costs[2].seconds[3], 1.2, 1e-6);
  EXPECT_FALSE(headline.costs[0].gives(headline.reported));
  EXPECT_THAT(headline.others, ::testing::IsEmpty());
  EXPECT_THAT(report_of(headline),
              AllOf(HasSubstr(fmt::format("The network above says {:.1f} ms", 1e3 * headline.without[3])),
                    HasSubstr("| " + headline.costs[0].of + " | cannot explain it | | | | | | | | no |\n"),
                    HasSubstr("of 10gbe-64 (a talk)")));
  EXPECT_THAT(conclusion_of(headline), Not(HasSubstr(headline.costs[0].of)));
}

TEST(Headline, OfAnIterationThatItCannotUseIsRefused) {
  Published shorter = published();
  shorter.iterations[0].seconds = 0.1;
  EXPECT_THAT([&] { explain(shorter); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("ddp of resnet50"), HasSubstr("100.0 ms"))));
  Published two = published();
  two.iterations.push_back(two.iterations[0]);
  EXPECT_THAT([&] { explain(two); }, ThrowsMessage<ConfigError>(HasSubstr("2 iterations are published")));
  Published none = published();
  none.iterations.clear();
  EXPECT_THAT([&] { explain(none); }, ThrowsMessage<ConfigError>(HasSubstr("no iteration is published")));
  Published without_gain = published();
  without_gain.gains.clear();
  EXPECT_THAT([&] { explain(without_gain); },
              ThrowsMessage<ConfigError>(HasSubstr("no gain on cluster '10gbe-64' is published")));
}

TEST(VerdictOfGains, FollowsTheNumbers) {
  const std::vector<RivalGain> gains = {{"wfbp", "resnet50", 0.1}, {"ddp", "densenet201", 0.9}};
  EXPECT_THAT(verdict_of(gains, 0.2, 0.83),
              AllOf(HasSubstr("ddp (90 %, densenet201)"), Not(HasSubstr("wfbp")),
                    HasSubstr("Over the fastest of all rivals"), HasSubstr("and not over the fastest")));
  EXPECT_THAT(verdict_of(gains, 0.2, 0.15), HasSubstr("there even over the fastest"));
  EXPECT_THAT(verdict_of(gains, 0.2, 0.95), AllOf(StartsWith("No rival modelled here"), HasSubstr("90 %")));
}

}  // namespace
}  // namespace dear::studies::headline_test
