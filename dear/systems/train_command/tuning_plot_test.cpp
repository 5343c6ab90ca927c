#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/systems/train_command/tuning_report.h"

namespace dear::train_command::tuning_plot_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TuningReport report() {
  TuningReport report{.model = "gpt",
                      .cluster = "here",
                      .ranks = 1,
                      .policy = "dear",
                      .method = "bo",
                      .where = "simulation",
                      .sizes = {},
                      .trials = {{0, 0.1000}, {1, 0.1004}, {1, 0.1004}, {2, 0.1008}},
                      .choice = 0};
  report.sizes.candidates = {{"64 KiB", {65536}, {0}}, {"1 MiB", {1048576}, {1}}, {"layer", {}, {0.5}}};
  return report;
}

TEST(TuningPlot, NumbersOfTheAxisDifferWhereTimesHardlyDo) {
  const std::string picture = plot(report());
  for (const char* const word :
       {">99.0 ms<", ">99.5 ms<", ">100.0 ms<", ">101.5 ms<", ">1<", ">2, 3<", ">layer<", "1 rank:"})
    EXPECT_THAT(picture, HasSubstr(word));
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
  EXPECT_THAT(picture, Not(HasSubstr("longer than the axis")));
}

TEST(TuningPlot, SaysWhichTrialsTheAxisDoesNotReach) {
  TuningReport slow = report();
  slow.trials.push_back({2, 5.0});
  EXPECT_THAT(plot(slow), HasSubstr("a trial that took longer than the axis reaches"));
}

TEST(TuningPlot, ShowsWhatIsExpectedWithoutTrials) {
  TuningReport none = report();
  none.trials.clear();
  none.expectations.assign(3, {.seconds = 0.2, .deviation = 0.01});
  const std::string picture = plot(none);
  EXPECT_THAT(picture, HasSubstr("one standard deviation"));
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace dear::train_command::tuning_plot_test
