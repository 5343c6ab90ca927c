#include "dear/tools/command/train_report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/systems/train_command/testing/results.h"
#include "dear/tools/options/numbers.h"

namespace dear::cli::train_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using train_command::testing::comparison_of;
using train_command::testing::run_of;

TEST(TrainReport, NumbersHaveSeparators) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(12345678), "12,345,678");
  EXPECT_EQ(with_separators(-999), "-999");
  EXPECT_EQ(with_separators(-1000), "-1,000");
}

TEST(TrainReport, TheTableComparesWithTheFirst) {
  const std::string text = to_text(
      {run_of("serial", 0.1, 0.05, "aa"), run_of("wfbp", 0.08, 0.02, "bb"), run_of("dear", 0.05, 0.0, "aa")},
      comparison_of({1, 1.25, 2}));
  EXPECT_EQ(
      text,
      "policy  iteration  computation  exposed communication  characters/s  speed-up     quartiles  same "
      "parameters\n"
      "serial  100.00 ms     50.00 ms      50.00 ms (50.0 %)     1,234,567      1.00  0.88 to 1.25           "
      "   yes\n"
      "wfbp     80.00 ms     60.00 ms      20.00 ms (25.0 %)     1,234,567      1.25  1.12 to 1.50           "
      "    no\n"
      "dear     50.00 ms     50.00 ms        0.00 ms (0.0 %)     1,234,567      2.00  1.88 to 2.25           "
      "   yes\n"
      "policies took turns, 12 each; the first does not count; speed-up over serial in one round of turns: "
      "median and quartiles of 11 rounds\n");
}

TEST(TrainReport, SpeedUpsOfAMachineThatWasNotQuietHaveAQuestionMark) {
  train_command::Comparison comparison = comparison_of({1, 2});
  comparison.quiet = false;
  comparison.remark = "The machine was not quiet.";
  const std::string text =
      to_text({run_of("serial", 0.1, 0.05, "aa"), run_of("dear", 0.05, 0.0, "aa")}, comparison);
  EXPECT_THAT(text, AllOf(HasSubstr(" 1.00 ?  "), HasSubstr(" 2.00 ?  ")));
  EXPECT_TRUE(text.ends_with("rounds\nThe machine was not quiet.\n"));
}

TEST(TrainReport, AnOnlyRoundCounts) {
  train_command::Comparison comparison = comparison_of({1});
  comparison.rounds = comparison.counted_rounds = 1;
  EXPECT_THAT(to_text({run_of("dear", 1, 0, "aa")}, comparison),
              HasSubstr("speed-up over dear in one round"));
}

TEST(TrainReport, OneRunTellsLossSpeedAndDigest) {
  EXPECT_THAT(to_text(run_of("dear", 0.1, 0.025, "c0ffee")),
              AllOf(HasSubstr("loss 4.500 at first, 2.125 at last"), HasSubstr("1,234,567 characters/s"),
                    HasSubstr("(25.0 %)"), HasSubstr("c0ffee")));
}

TEST(TrainReport, ANetworkThatWasModelledIsSaidToBe) {
  EXPECT_THAT(network_line("modelled: 1gbit", "shm"),
              AllOf(HasSubstr("modelled: 1gbit"), Not(HasSubstr("shm"))));
  EXPECT_EQ(network_line("", "shm, 4 ranks on this host"), "network: real, shm, 4 ranks on this host\n");
}

TEST(TrainReport, SaysWhatTuningChose) {
  train_command::TrainResult run = run_of("dear", 0.5, 0.125, "c0ffee");
  EXPECT_EQ(to_text(run).find("buckets:"), std::string::npos);
  const Workload workload{.name = "two",
                          .tensors = {{"a", 100'000, DType::f32}, {"b", 100'000, DType::f32}},
                          .layers = {{.name = "first", .tensors = {0}}, {.name = "second", .tensors = {1}}}};
  run.tuning =
      train_command::TuningReport{.where = "training", .sizes = size_candidates(workload), .settled = false};
  EXPECT_THAT(to_text(run), HasSubstr("buckets: not tuned"));
  run.tuning->choice = run.tuning->sizes.candidates.size() - 1;
  run.tuning->trials = {{.candidate = 0, .seconds = 2}, {.candidate = run.tuning->choice, .seconds = 1}};
  EXPECT_THAT(to_text(run), HasSubstr("of 2 kinds tried; tuning had not"));
  run.tuning->settled = true;
  run.tuning->remark = "no room";
  EXPECT_THAT(to_text(run), HasSubstr("not kept: no room\n"));
  run.tuning->remark = "";
  EXPECT_THAT(to_text(run), HasSubstr("all (1 bucket), of 2 kinds tried\n"));
}

}  // namespace
}  // namespace dear::cli::train_report_test
