#include "studies/edge/partel.h"
#include "studies/edge/wireless.h"
#include "studies/report/testing/verdicts.h"
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/edge/paba.h"

namespace dear::studies::edge::edge_study_test {
namespace {

using ::testing::HasSubstr;

PublishedPartel published() {
  return {.source = "a test", .less_latency = 0.5, .more_accuracy = 0.05, .deadline_seconds = 100};
}

// Seconds by scheme: equal, parameters, bandwidth, bandwidth-then-parameters, joint.
PartelFindings right_partel() {
  const std::vector<double> seconds{2, 1.5, 1.4, 1.4, 1};
  return {.cells = {{.groups = 20, .workers = 1, .seconds = seconds, .less = 0.5, .half_width = {}}},
          .plans = {{.seconds = seconds}, {.seconds = seconds}},
          .accuracies = {{0.5, 0.5, 0.5, 0.5, 0.55}}};
}

TEST(StudyOfPartel, VerdictsCanFail) {
  using Wrong = testing::WrongResult<PartelFindings>;
  testing::expect_every_verdict_can_fail<PartelFindings>(
      right_partel(),
      std::vector<Wrong>{
          {"less time than equal parts", [](PartelFindings& f) { f.cells[0].less = 0.3; }},
          {"never slower than either part", [](PartelFindings& f) { f.plans[1].seconds[4] = 1.45; }},
          {"gain nothing over bandwidth", [](PartelFindings& f) { f.plans[0].seconds[3] = 1.3; }},
          {"plan is faster than the joint", [](PartelFindings& f) { f.plans[1].gap = 1e-3; }},
          {"more accurate (published)", [](PartelFindings& f) { f.accuracies[0][4] = 0.5; }}},
      [](const PartelFindings& findings) { return statements_of(published(), findings); });
}

TEST(StudyOfPartel, WritesItsFilesFromWhatWasPublished) {
  const PublishedPartel read =
      read_published_partel(dear::testing::source_file("docs/study/partel/published.json"));
  EXPECT_GT(read.less_latency, 0.4);
  const std::vector<StudyFile> files = study_of_partel(read, {.seeds = 2, .trained = 1});
  ASSERT_EQ(files.size(), 3U);
  EXPECT_THAT(files[0].content, HasSubstr("| 20 groups of 1 |"));
  EXPECT_THAT(files[2].content, HasSubstr("<svg"));
  EXPECT_THROW(parse_published_partel("{}", "x"), ConfigError);
}

WirelessFindings right_wireless() {
  using methods::edge::Split;
  WirelessFindings findings;
  for (const auto& [name, accuracy] : std::vector<std::pair<const char*, double>>{
           {"bc-bn2", 0.8}, {"bn2", 0.7}, {"best-channel", 0.6}, {"random", 0.75}})
    findings.schedulers.push_back(
        {.name = name, .split = Split::sorted, .accuracies = {accuracy, accuracy}, .first = {}});
  for (const int devices : {5, 10, 20})
    for (const double snr : {-10.0, 0.0, 10.0, 20.0, 30.0})
      findings.errors.push_back(
          {.devices = devices, .snr_db = snr, .analogue = 1, .digital = snr > devices / 4.0 ? 0.5 : 2});
  findings.hierarchical_seconds = findings.reusing_seconds = 1;
  findings.flat_seconds = 2;
  findings.following_losses = {1, 1.1};
  findings.fixed_losses = {2, 2.1};
  return findings;
}

TEST(StudyOfWireless, VerdictsCanFail) {
  using Wrong = testing::WrongResult<WirelessFindings>;
  testing::expect_every_verdict_can_fail<WirelessFindings>(
      right_wireless(),
      std::vector<Wrong>{
          {"bc-bn2 is at least", [](WirelessFindings& f) { f.schedulers[0].accuracies = {0.5, 0.5}; }},
          {"best channels alone", [](WirelessFindings& f) { f.schedulers[3].accuracies = {0.5, 0.5}; }},
          {"analogue sums err less",
           [](WirelessFindings& f) {
             for (auto& one : f.errors) one.digital = 2;
           }},
          {"more devices, the higher",
           [](WirelessFindings& f) {
             for (auto& one : f.errors) one.digital = one.snr_db > 35 - 2.0 * one.devices ? 0.5 : 2;
           }},
          {"small cells", [](WirelessFindings& f) { f.hierarchical_seconds = f.reusing_seconds = 3; }},
          {"scale follows", [](WirelessFindings& f) { f.following_losses = {3, 3.1}; }}},
      [](const WirelessFindings& findings) { return statements_of(findings); });
}

TEST(StudyOfWireless, SaysWhatIsUndecidedOrNotComparable) {
  const auto verdicts = [](const WirelessFindings& findings) {
    std::string all;
    for (const Statement& one : statements_of(findings)) all += one.says + ": " + one.verdict() + "\n";
    return all;
  };
  WirelessFindings findings = right_wireless();
  findings.reusing_seconds = 3;  // another assumption, another verdict
  findings.fixed_losses = {1.2, 0.9};
  findings.schedulers[0].accuracies = {0.9};  // one seed says nothing
  findings.schedulers[1].accuracies = {0.1};
  findings.schedulers[2].accuracies = {0.1};
  for (auto& one : findings.errors)
    if (one.devices == 20) one.digital = 2;  // never crosses
  EXPECT_THAT(verdicts(findings), HasSubstr("one cell (1909.02362): not comparable"));
  EXPECT_THAT(verdicts(findings), HasSubstr("a fixed scale (2009.12787): undecided"));
  EXPECT_THAT(verdicts(findings), HasSubstr("its criteria (2001.10402): undecided"));
  EXPECT_THAT(verdicts(findings), HasSubstr("digital links err less: does not hold"));
}

TEST(StudyOfWireless, WritesItsFiles) {
  const std::vector<StudyFile> files = study_of_wireless({.seeds = 1, .seconds = 1, .noise_rounds = 3});
  ASSERT_EQ(files.size(), 4U);
  EXPECT_THAT(files[0].content, HasSubstr("| bc-bn2 |"));
}

}  // namespace
}  // namespace dear::studies::edge::edge_study_test
