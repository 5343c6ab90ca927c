#include "dear/tools/rounds_command/rounds_options.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/rounds_command/rounds_report.h"

namespace dear::rounds_command::rounds_options_test {
namespace {

using ::testing::HasSubstr;

RoundsSettings check_alone(const RoundsOptions& options) { return check(options, LaunchEnvironment{}); }

TEST(RoundsOptions, HaveDefaultsThatSuitTheProblem) {
  const RoundsSettings logistic = check_alone({.clients = 10, .dimension = 20});
  EXPECT_EQ(logistic.workers, 1);
  EXPECT_EQ(logistic.target.error, 1e-8);
  ASSERT_EQ(logistic.algorithms.size(), 4U);
  EXPECT_EQ(logistic.algorithms.front().algorithm->name, "gd");
  EXPECT_EQ(logistic.auc, nullptr);
  const RoundsSettings auc = check_alone({.problem = "auc"});
  ASSERT_EQ(auc.algorithms.size(), 2U);
  EXPECT_EQ(auc.algorithms.front().every, 8);
  EXPECT_NE(auc.auc, nullptr);
  EXPECT_EQ(auc.target.error, 0);
}

TEST(RoundsOptions, GoToTheAlgorithmsThatLookAtThem) {
  const RoundsSettings settings = check_alone({.problem = "quadratic",
                                               .algorithms = {"gd", "fedavg", "tamuna"},
                                               .cohort = 4,
                                               .owners = {3},
                                               .local_steps = {5}});
  EXPECT_EQ(settings.algorithms[0].cohort, 10);
  EXPECT_EQ(settings.algorithms[0].every, 1);
  EXPECT_EQ(settings.algorithms[1].cohort, 4);
  EXPECT_EQ(settings.algorithms[1].every, 5);
  EXPECT_EQ(settings.algorithms[2].owners, 3);
  EXPECT_EQ(settings.algorithms[2].probability, 0.2);
}

TEST(RoundsOptions, WithSeveralValuesMakeAnAlgorithmRunWithEach) {
  const RoundsSettings settings = check_alone({.problem = "quadratic",
                                               .algorithms = {"scaffnew", "tamuna"},
                                               .owners = {2, 5},
                                               .local_steps = {2, 4}});
  ASSERT_EQ(settings.algorithms.size(), 6U);
  EXPECT_EQ(settings.algorithms[1].algorithm->name, "scaffnew");
  EXPECT_EQ(settings.algorithms[1].probability, 0.25);
  EXPECT_EQ(settings.algorithms[2].owners, 2);
  EXPECT_EQ(settings.algorithms[5].owners, 5);
  EXPECT_EQ(settings.algorithms[5].probability, 0.25);
}

TEST(RoundsOptions, ThatCannotBeAreRefusedInOneSentence) {
  struct Refusal {
    RoundsOptions options;
    std::string says;
  };
  for (const Refusal& one : std::vector<Refusal>{
           {{.problem = "logistik"}, "--problem: there is no problem 'logistik', did you mean logistic"},
           {{.algorithms = {"scafnew"}},
            "--algorithm: there is no algorithm 'scafnew', did you mean scaffnew"},
           {{.clients = 0}, "--clients"},
           {{.dimension = 0}, "--dimension"},
           {{.clients = 1'000'000, .dimension = 100'000'000}, "GiB"},
           {{.clients = 1}, "--algorithm scaffnew: scaffnew takes at least 2 clients"},
           {{.problem = "auc", .condition = 5}, "--condition: problem auc has no such property"},
           {{.positive = 0.5}, "--positive: problem logistic"},
           {{.problem = "auc", .positive = 1}, "share of positives of 1"},
           {{.problem = "auc", .shards = "mixed"}, "--shards"},
           {{.problem = "auc", .algorithms = {"gd"}}, "--algorithm gd: gd seeks a minimum"},
           {{.problem = "auc", .error = 1e-3}, "--error"},
           {{.condition = 0.5}, "condition number of 0.5"},
           {{.algorithms = {"gd"}, .cohort = 5}, "--cohort counts for fedavg, scaffold and tamuna alone"},
           {{.algorithms = {"gd"}, .local_steps = {5}}, "--local-steps counts for"},
           {{.cohort = 101}, "--algorithm tamuna: a cohort of 101 of 100 clients"},
           {{.cohort = 0}, "--cohort"},
           {{.owners = {1}}, "control variates would never change"},
           {{.algorithms = {"fedavg"}, .local_steps = {2.5}}, "a whole number"},
           {{.local_steps = {0.5}}, "--local-steps is 0.5"},
           {{.gamma = 0}, "--gamma is 0"},
           {{.gamma = 1000}, "diverges"},
           {{.chi = 3}, "a chi of 3 is above"},
           {{.stages = 2}, "--stages counts for coda and codasca alone"},
           {{.alpha = 2}, "weight of reals that are sent down"},
           {{.absence = NAN}, "probability of absence"},
           {{.error = 0}, "--error is 0"},
           {{.error = 2}, "--error is 2"},
           {{.rounds = 0}, "--rounds"},
           {{.batch = 0}, "--batch"},
           {{.clients = 4, .workers = 8}, "--workers: 4 clients cannot be dealt to 8 ranks"},
           {{.backend = "smh"}, "--backend"},
           {{.timeout = "0s"}, "--timeout"},
       }) {
    try {
      check_alone(one.options);
      ADD_FAILURE() << "not refused: " << one.says;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(one.says));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

RoundsReport report() {
  const RoundsSettings settings =
      check_alone({.problem = "quadratic", .algorithms = {"gd", "tamuna", "fedavg"}, .seed = 3});
  RoundsReport report{
      .problem = settings.described, .clients = 10, .dimension = 12, .runs = {}, .alpha = 0.5};
  using methods::rounds::End;
  const auto add = [&](std::size_t which, End end, std::int64_t up, std::int64_t down, double error) {
    const methods::rounds::Milestone last{.counts = {.rounds = 5, .steps = 9, .up = up, .down = down},
                                          .error = error};
    report.runs.push_back({.settings = settings.algorithms[which],
                           .outcome = {.end = end, .last = last, .milestones = {last}},
                           .seconds = 1.5});
  };
  add(0, End::reached, 4000, 4000, 1e-9);
  add(1, End::reached, 500, 1000, 2e-9);
  add(2, End::stalled, 100, 100, 0.3);
  return report;
}

TEST(RoundsReport, ComparesReachedRunsWithTheFirst) {
  const std::string text = to_text(report());
  EXPECT_THAT(text, HasSubstr("6.0x")) << "(4000 + 2000) / (500 + 500)";
  EXPECT_THAT(text, HasSubstr("stalled"));
  EXPECT_THAT(text, HasSubstr("where one sent down counts 0.5"));
  const std::string stalled = text.substr(text.find("\nfedavg"));
  EXPECT_THAT(stalled.substr(1, stalled.find('\n', 1)), HasSubstr(" -  ")) << "no comparison";
}

TEST(RoundsReport, IsJsonAndAPicture) {
  const auto json = nlohmann::json::parse(to_json(report()));
  EXPECT_EQ(json["clients"], 10);
  EXPECT_EQ(json["runs"][1]["algorithm"], "tamuna");
  EXPECT_EQ(json["runs"][1]["reals_up"], 500);
  EXPECT_EQ(json["runs"][2]["end"], "stalled");
  EXPECT_EQ(json["runs"][0]["milestones"].size(), 1U);
  EXPECT_THAT(plot_of(report()), HasSubstr("tamuna"));
}

}  // namespace
}  // namespace dear::rounds_command::rounds_options_test
