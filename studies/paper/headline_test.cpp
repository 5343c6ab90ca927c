#include "studies/paper/headline.h"

#include "studies/paper/paper_tables.h"
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/calibration.h"
#include "dear/platform/cluster/presets.h"
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
                static_cast<double>(workload.buffers) * buffers.constant, 1e-9)
        << kPaperModels[i];
  }
}

TEST_F(HeadlineOfTheProject, GivesTheConstantOfThePreset) {
  EXPECT_NEAR(headline.costs.front().constant / kBufferSecondsOnEthernet, 1, 0.01);
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

TEST(Headline, OfAnIterationThatNoCostExplainsIsRefused) {
  Published shorter = published();
  shorter.iterations[0].seconds = 0.1;
  EXPECT_THAT([&] { explain(shorter); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("ddp of resnet50"), HasSubstr("100.0 ms"))));
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
                    HasSubstr("and not over the fastest")));
  EXPECT_THAT(verdict_of(gains, 0.2, 0.15), HasSubstr("there even over the fastest"));
  EXPECT_THAT(verdict_of(gains, 0.2, 0.95), AllOf(StartsWith("No rival modelled here"), HasSubstr("90 %")));
}

}  // namespace
}  // namespace dear::studies::headline_test
