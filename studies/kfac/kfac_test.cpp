#include "studies/kfac/kfac.h"

#include "studies/kfac/convergence.h"
#include "studies/report/testing/verdicts.h"
#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/workload/zoo/models.h"

namespace dear::studies::kfac::kfac_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

PublishedKfac published() {
  return read_published_kfac(dear::testing::source_file("docs/study/kfac/published.json"));
}

const Findings& findings() {
  static const Findings kFindings = simulate_models(published());
  return kFindings;
}

TEST(StudyOfKfac, RatiosAreWithinFivePercentGivenTheParts) {
  for (std::size_t i = 0; i < findings().models.size(); ++i) {
    const PublishedKfac figures = published();
    const PublishedKfac::Model& model = figures.models[i];
    SCOPED_TRACE(model.model);
    const std::vector<Fed>& fed = findings().models[i].fed;
    ASSERT_EQ(fed.size(), 3U);
    EXPECT_NEAR(fed[0].seconds / fed[2].seconds / (model.d / model.spd), 1, 0.05);
    EXPECT_NEAR(fed[1].seconds / fed[2].seconds / (model.mpd / model.spd), 1, 0.05);
    for (const Fed& one : fed) EXPECT_NEAR(one.parts.total(), one.seconds, 1e-9) << one.strategy;
  }
}

TEST(StudyOfKfac, EveryPublishedOrderComesOutWithCalibratedCosts) {
  for (const Order& order : orders_of(published(), findings())) EXPECT_EQ(order.calibrated, 4) << order.says;
}

// A figure of the half that is held back changes no constant.
TEST(StudyOfKfac, NothingIsFittedToTheOtherHalf) {
  PublishedKfac changed = published();
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    changed.models[i].factors_sent = {.bulk = 1, .alone = 1, .threshold = 1, .rule = 1};
    changed.models[i].inverses = {.local = 1, .round_robin = 1, .balanced = 1};
    changed.models[i].d = 9;
  }
  std::vector<PublishedJob> jobs;
  for (int i = 0; i < 4; ++i) {
    dear::methods::kfac::Job job;
    job.workload.name = "job";
    for (const std::int64_t dimension : {64, 512, 2048 >> (i % 2)}) {
      job.workload.tensors.push_back({.name = "w", .elements = dimension * dimension});
      job.workload.layers.push_back({.name = "layer",
                                     .tensors = {static_cast<TensorId>(job.workload.tensors.size() - 1)},
                                     .forward_seconds = 0.01,
                                     .backward_seconds = 0.02});
      job.curvature.push_back(dear::methods::kfac::LayerCurvature{.inputs = dimension,
                                                                  .outputs = dimension,
                                                                  .input_factor_seconds = 0.01,
                                                                  .output_factor_seconds = 0.01});
    }
    jobs.push_back({job, published().cycle_seconds, published().threshold_elements});
  }
  const dear::methods::kfac::Costs one = calibrate(published(), jobs, fitted_half(4));
  const dear::methods::kfac::Costs other = calibrate(changed, jobs, fitted_half(4));
  EXPECT_EQ(one.all_reduce.start_seconds, other.all_reduce.start_seconds);
  EXPECT_EQ(one.interference, other.interference);
  EXPECT_EQ(one.broadcast.seconds_per_element, other.broadcast.seconds_per_element);
  EXPECT_EQ(one.invert.seconds(1000), other.invert.seconds(1000));
}

// The rule of the paper loses in some jobs; what is planned in none.
void expect_no_planned_placement_is_slower(int jobs) {
  const std::vector<PlacementOutcome> outcomes = placement_on_random_jobs(jobs);
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_GT(outcomes[0].slower, 0);
  EXPECT_EQ(outcomes[1].slower, 0);
  EXPECT_LE(outcomes[1].worst, 1 + 1e-9);
  EXPECT_LT(outcomes[1].mean, outcomes[0].mean);
}

TEST(Placements, OfAHundredJobsNoneIsSlowerThanAllLocalOrRoundRobin) {
  expect_no_planned_placement_is_slower(100);
}

TEST(StudyOfKfac, OfAThousandJobsNoneIsSlowerThanAllLocalOrRoundRobin) {
  expect_no_planned_placement_is_slower(1000);
}

struct Seen {
  Findings findings;
  FusionOutcome fusion{.cases = 10, .optimal = 10, .within_5 = 10, .mean = 1, .worst = 1};
  std::vector<PlacementOutcome> placements{{.placement = "balanced", .jobs = 10, .worst = 1, .mean = 1},
                                           {.placement = "planned", .jobs = 10, .worst = 1, .mean = 1}};
};

// Returns what somebody saw to whom all figures came out as published.
Seen as_said(const PublishedKfac& figures) {
  Seen seen;
  for (const PublishedKfac::Model& model : figures.models) {
    const Modelled modelled{.factors_sent = {{"bulk", model.factors_sent.bulk},
                                             {"alone", model.factors_sent.alone},
                                             {"threshold", model.factors_sent.threshold},
                                             {"rule", model.factors_sent.rule}},
                            .inverses = {{"local", model.inverses.local},
                                         {"round-robin", model.inverses.round_robin},
                                         {"balanced", model.inverses.balanced}},
                            .steps = {{"none", model.steps.none},
                                      {"pipelining", model.steps.pipelining},
                                      {"balance", model.steps.balance},
                                      {"both", model.steps.both}},
                            .strategies = {{"mpd-kfac", 3},
                                           {"mpd-kfac-owner", 3},
                                           {"spd-kfac", 2},
                                           {"spd-kfac-owner", 2},
                                           {"spd-kfac, exact fusion", 2}}};
    seen.findings.models.push_back({.model = model.model,
                                    .as_published = modelled,
                                    .calibrated = modelled,
                                    .swapped = modelled,
                                    .fed = {{.strategy = "d-kfac", .seconds = model.d},
                                            {.strategy = "mpd-kfac", .seconds = model.mpd},
                                            {.strategy = "spd-kfac", .seconds = model.spd}},
                                    .spd_seconds_without_its_own = model.spd});
  }
  return seen;
}

TEST(Verdicts, OfEveryStatementCanFail) {
  using Spoil = std::function<void(Seen&)>;
  const PublishedKfac figures = published();
  const auto models = [](const std::function<void(ModelFindings&)>& spoil) -> Spoil {
    return [spoil](Seen& seen) {
      for (ModelFindings& found : seen.findings.models) spoil(found);
    };
  };
  const auto longer = [&](std::vector<Outcome> Modelled::* group, const char* name) {
    return models([group, name](ModelFindings& found) {
      for (Outcome& outcome : found.calibrated.*group)
        if (outcome.name == name) outcome.seconds *= 3;
    });
  };
  const auto slow = models([](ModelFindings& found) { found.fed.back().seconds *= 1.2; });
  const auto slow_without = models([](ModelFindings& found) { found.spd_seconds_without_its_own *= 1.2; });
  const auto losing = [](std::size_t which) -> Spoil {
    return [which](Seen& seen) { seen.placements[which].slower = 1; };
  };
  studies::testing::expect_every_verdict_can_fail<Seen>(
      as_said(figures),
      {{"as fast as D-KFAC (published), given the parts", slow},
       {"as fast as MPD-KFAC (published), given the parts", slow},
       {"as fast as D-KFAC (published), given the same", slow_without},
       {"as fast as MPD-KFAC (published), given the same", slow_without},
       {"Sent one by one", longer(&Modelled::factors_sent, "bulk")},
       {"groups by threshold", longer(&Modelled::factors_sent, "rule")},
       {"dealt round robin take longer", models([](ModelFindings& found) {
          std::swap(found.calibrated.inverses[0].seconds, found.calibrated.inverses[1].seconds);
        })},
       {"Balanced inverses take less", longer(&Modelled::inverses, "balanced")},
       {"Pipelining alone", longer(&Modelled::steps, "both")},
       {"Exact fusion makes", longer(&Modelled::strategies, "spd-kfac, exact fusion")},
       {"SPD-KFAC is no slower", longer(&Modelled::strategies, "spd-kfac-owner")},
       {"MPD-KFAC is no slower", longer(&Modelled::strategies, "mpd-kfac-owner")},
       {"rule of fusion is optimal", [](Seen& seen) { seen.fusion.optimal = 9; }},
       {"Placement balanced", losing(0)},
       {"Placement planned", losing(1)}},
      [&](const Seen& seen) { return statements_of(figures, seen.findings, seen.fusion, seen.placements); });
}

// The page beside SGD: K-FAC took 121 of SGD's 399 iterations, and then 300, and then reached nothing.
TEST(Verdicts, OfConvergenceCanFail) {
  nlohmann::json measured =
      nlohmann::json::parse(std::ifstream(dear::testing::source_file("docs/study/kfac/convergence.json")));
  const auto page = [&] {
    const std::string path = ::testing::TempDir() + "dear_kfac_convergence_" + std::to_string(getpid());
    std::ofstream(path) << measured.dump();
    return convergence_of(path).front().content;
  };
  const auto set = [&](const nlohmann::json& steps) {
    for (nlohmann::json& task : measured["tasks"])
      for (nlohmann::json& rival : task["rivals"])
        if (rival["optimizer"] == "K-FAC")
          rival["steps_to_target"] = nlohmann::json::array({steps, steps, steps});
  };
  set(10);
  EXPECT_THAT(page(), HasSubstr("at most half of them holds"));
  set(100'000);
  EXPECT_THAT(page(), HasSubstr("at most half of them does not hold"));
  EXPECT_THAT(page(), Not(HasSubstr("half of them holds")));
  set(nullptr);
  EXPECT_THAT(page(), HasSubstr("K-FAC did not reach the target"));
}

TEST(StudyOfKfac, WritesItsPage) {
  const std::vector<studies::StudyFile> files = study_of_kfac(published(), findings());
  ASSERT_EQ(files.size(), 5U);
  EXPECT_THAT(files[0].content, HasSubstr("holds"));
  const nlohmann::json results = nlohmann::json::parse(files[1].content);
  EXPECT_EQ(results["models"].size(), 4U);
  for (std::size_t i = 2; i < files.size(); ++i) EXPECT_THAT(files[i].content, HasSubstr("</svg>"));
}

TEST(StudyOfKfac, RefusesFiguresThatAreNone) {
  EXPECT_THAT([] { parse_published_kfac("{", "figures.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  EXPECT_THAT(
      [] { parse_published_kfac(R"({"format": "dear-published-kfac", "version": 1})", "figures.json"); },
      ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  EXPECT_THROW(parts_of(published(), "resnet50", "sgd"), ConfigError);
  EXPECT_EQ(parts_of(published(), "resnet50", "d-kfac").inverses_sent, 0);
}

}  // namespace
}  // namespace dear::studies::kfac::kfac_test
