#include "dear/tools/command/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::cli::profile_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

train_command::ModelProfile three_layers() {
  train_command::ModelProfile profile;
  profile.workload = {
      .name = "three",
      .tensors = {{.name = "a", .elements = 1000},
                  {.name = "b", .elements = 500},
                  {.name = "c", .elements = 24}},
      .layers = {{.name = "first", .tensors = {0, 1}, .forward_seconds = 0.010, .backward_seconds = 0.020},
                 {.name = "second", .tensors = {2}, .forward_seconds = 0.020, .backward_seconds = 0.040},
                 {.name = "third", .tensors = {0}, .forward_seconds = 0.003, .backward_seconds = 0.007}},
      .update_seconds = 0.1,
      .buffer_bytes = 2048};
  profile.forward_seconds = {.median = 0.033, .p10 = 0.030, .p90 = 0.036};
  profile.backward_seconds = {.median = 0.067, .p10 = 0.060, .p90 = 0.070};
  profile.update_seconds = {.median = 0.1, .p10 = 0.09, .p90 = 0.11};
  profile.recorded_step_seconds = {.median = 0.202, .p10 = 0.19, .p90 = 0.21};
  profile.plain_step_seconds = {.median = 0.198, .p10 = 0.18, .p90 = 0.2};
  return profile;
}

TEST(ProfileReport, AddsUpWhatTheFileSaysBesideWholeSteps) {
  const std::string text = to_text(three_layers(), 3);
  EXPECT_THAT(text, AllOf(HasSubstr("3 layers, 3 tensors, 1,524 parameters (5.95 KiB), 2 KiB of buffers\n"),
                          HasSubstr("forward                    33 ms   30 ms   36 ms      16.5 %\n"),
                          HasSubstr("sum: what the file says   200 ms                     100.0 %\n"),
                          HasSubstr("whole step, recorded      202 ms  190 ms  210 ms     101.0 %\n"),
                          HasSubstr("whole step, not recorded  198 ms  180 ms  200 ms      99.0 %\n")))
      << text;
}

TEST(ProfileReport, OfAnotherDeviceHasNoSpread) {
  train_command::ModelProfile profile = three_layers();
  profile.workload.device = "a100";
  profile.flops = 3e9;
  EXPECT_THAT(to_text(profile, 3), AllOf(HasSubstr("by the roofline of a100"), HasSubstr("3 GFLOP"),
                                         Not(HasSubstr("p90")), HasSubstr("\nsecond ")));
}

TEST(ProfileReport, SaysThatTheMachineWasBusy) {
  train_command::ModelProfile profile = three_layers();
  EXPECT_THAT(to_text(profile, 3), Not(HasSubstr("measure again")));
  profile.recorded_step_seconds.p90 = 0.25;
  EXPECT_THAT(to_text(profile, 3),
              HasSubstr("\nSteps that compute the same took times far apart: measure again"));
  profile.recorded_step_seconds.p90 = 0.21;
  profile.plain_step_seconds.p10 = 0.1;
  EXPECT_THAT(to_text(profile, 3), HasSubstr("measure again"));
}

TEST(ProfileReport, ShowsTheSlowestLayersFirst) {
  const std::string all = to_text(three_layers(), 8);
  EXPECT_LT(all.find("\nsecond "), all.find("\nfirst "));
  EXPECT_LT(all.find("\nfirst "), all.find("\nthird "));
  EXPECT_THAT(all, AllOf(HasSubstr("layers by time"), HasSubstr("60.0 %"), Not(HasSubstr("slowest"))));
  const std::string one = to_text(three_layers(), 1);
  EXPECT_THAT(one, AllOf(HasSubstr("slowest layers"), HasSubstr("\nsecond "), Not(HasSubstr("\nfirst "))));
}

TEST(ProfileReport, SaysWhatIsNotTrained) {
  train_command::ModelProfile profile = three_layers();
  EXPECT_THAT(to_text(profile, 3), AllOf(Not(HasSubstr("frozen")), Not(HasSubstr("no gradient"))));
  profile.frozen_parameters = 1234;
  profile.tensors_without_gradient = 2;
  EXPECT_THAT(to_text(profile, 3), AllOf(HasSubstr("\n1,234 parameters are frozen: "),
                                         HasSubstr("\n2 of the tensors got no gradient: ")));
}

}  // namespace
}  // namespace dear::cli::profile_report_test
