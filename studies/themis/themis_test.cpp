#include "studies/themis/themis.h"

#include "studies/report/testing/verdicts.h"
#include "studies/themis/report.h"
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::themis {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PublishedThemis published() {
  return read_published_themis(dear::testing::source_file("docs/study/themis/published.json"));
}

TEST(StudyOfThemis, MeansOverTheSixNetworksAreThosePublished) {
  const std::vector<Use> uses = uses_of(evaluated_networks(), {});
  ASSERT_EQ(evaluated_networks().size(), 6U);
  for (const PublishedThemis::Utilisation& one : published().utilisation) {
    EXPECT_NEAR(over_networks(uses, one.algorithm, &Use::utilisation).mean, one.mean, kCloseUtilisation)
        << one.algorithm;
  }
  for (const PublishedThemis::Gain& one : published().gains) {
    EXPECT_NEAR(over_networks(uses, one.algorithm, &Use::gain).mean, one.mean, kCloseGain) << one.algorithm;
  }
  const double scf = over_networks(uses, "themis-scf", &Use::utilisation).mean;
  EXPECT_GE(over_networks(uses, "themis", &Use::utilisation).mean, scf);
}

TEST(StudyOfThemis, TheGuardIsNeverSlowerAndThePublishedAlgorithmSometimesIs) {
  for (const RandomOutcome& outcome : on_random_networks({.networks = 300})) {
    if (outcome.algorithm == "themis") {
      EXPECT_EQ(outcome.slower, 0);
      EXPECT_GE(outcome.worst, 1 - 1e-9);
    } else if (outcome.algorithm.starts_with("themis-")) {
      EXPECT_GT(outcome.slower, 0);
    }
  }
}

TEST(StudyOfThemis, NothingIsFasterThanTheOptimum) {
  int found = 0;
  for (const OptimumOutcome& outcome : beside_the_optimum({.networks = 10, .chunks = {2, 3}})) {
    found += outcome.networks;
    if (outcome.networks == 0) continue;
    EXPECT_GE(outcome.longer, 1 - 1e-9) << outcome.algorithm;
    EXPECT_GE(outcome.most_longer, outcome.longer);
  }
  EXPECT_GT(found, 0);
}

// Communication that takes no time at all beside computation cannot be gained from; where it is nearly all
// there is, the gain is that of an all-reduce.
TEST(StudyOfThemis, GainsOfIterationsGrowWithCommunication) {
  IterationOptions options{.models = {"resnet152"}, .policies = {"serial"}, .algorithms = {"themis"}};
  options.ratios = {1.0 / 64, 1, 64};
  const std::vector<Cluster> network{evaluated_networks().front()};
  const std::vector<IterationGain> gains = iteration_gains(network, options);
  ASSERT_EQ(gains.size(), 4U);
  EXPECT_LT(gains[1].gain, 1.01);
  EXPECT_GT(gains[2].gain, gains[1].gain);
  EXPECT_GT(gains[3].gain, gains[2].gain);
  EXPECT_GT(gains[3].gain, 1.4);
  const ReachedAt at = where_gain_is(gains, "resnet152", "serial", "themis", gains[2].gain);
  EXPECT_NEAR(at.ratio, 1, 1e-9);
  EXPECT_NEAR(at.largest, gains[2].largest, 1e-9);
  EXPECT_EQ(where_gain_is(gains, "resnet152", "serial", "themis", 100).ratio, 0);
}

TEST(StudyOfThemis, EveryVerdictCanFail) {
  const PublishedThemis figures = published();
  const ThemisOptions options = quick_study();
  ThemisFindings right = find(options);
  for (RandomOutcome& outcome : right.random) outcome.slower = 0;
  const auto all_gain = [](double gain) {
    return [gain](ThemisFindings& findings) {
      for (Use& use : findings.uses) use.gain = gain;
    };
  };
  const auto all_use = [](ThemisFindings& findings) {
    for (Use& use : findings.uses) use.utilisation = 0.75;
  };
  std::vector<studies::testing::WrongResult<ThemisFindings>> wrong{
      {"by baseline uses", all_use},
      {"by themis-fifo uses", all_use},
      {"by themis-scf uses", all_use},
      {"themis-fifo is 1.58", all_gain(1)},
      {"themis-scf is 1.72", all_gain(1)},
      {"the smallest phase first",
       [](ThemisFindings& findings) {
         for (Use& use : findings.uses)
           if (use.algorithm == "themis-scf") use.seconds *= 2;
       }},
      {"that of the best network",
       [](ThemisFindings& findings) {
         for (IterationGain& gain : findings.iterations) gain.largest = 4;
       }},
      {"overlap leaves less to gain",
       [](ThemisFindings& findings) {
         for (IterationGain& gain : findings.iterations)
           if (gain.policy == "dear") gain.gain = 9;
       }},
      {"start-ups are all there is", [](ThemisFindings& findings) {
         for (SizeOutcome& outcome : findings.sizes) outcome.gain = 1.2;
       }}};
  for (const char* const algorithm : {"themis-fifo", "themis-scf", "balanced", "themis"})
    wrong.push_back({fmt::format("{} is never slower", algorithm), [algorithm](ThemisFindings& findings) {
                       for (RandomOutcome& outcome : findings.random)
                         if (outcome.algorithm == algorithm) outcome.slower = 1;
                     }});
  studies::testing::expect_every_verdict_can_fail(right, wrong, [&](const ThemisFindings& findings) {
    return statements_of(figures, options, findings);
  });
}

TEST(StudyOfThemis, WritesItsPage) {
  const std::vector<studies::StudyFile> files = study_of_themis(published(), quick_study());
  ASSERT_EQ(files.size(), 5U);
  EXPECT_EQ(files[0].name, "README.md");
  EXPECT_THAT(files[0].content, HasSubstr("holds"));
  EXPECT_THAT(files[0].content, HasSubstr("| published mean |"));
  EXPECT_EQ(nlohmann::json::parse(files[1].content)["utilisation"].size(), 36U);
  for (std::size_t picture = 2; picture < files.size(); ++picture)
    EXPECT_THAT(files[picture].content, HasSubstr("</svg>"));
}

TEST(StudyOfThemis, RefusesFiguresThatAreNone) {
  const auto parse = [](const std::string& text) {
    return [text] { parse_published_themis(text, "figures.json"); };
  };
  EXPECT_THAT(parse("{"), ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  const std::string head = R"({"format": "dear-published-themis", "version": 1, "source": "x", )";
  EXPECT_THAT(
      parse(head + R"("utilisation": [{"algorithm": "thetis", "mean": 1}], "gains": [], "iterations": []})"),
      ThrowsMessage<ConfigError>(HasSubstr("utilisation[0].algorithm")));
  EXPECT_THAT(
      parse(head + R"("utilisation": [], "gains": [{"algorithm": "themis", "mean": 0}], "iterations": []})"),
      ThrowsMessage<ConfigError>(HasSubstr("gains[0].mean")));
}

}  // namespace
}  // namespace dear::studies::themis
