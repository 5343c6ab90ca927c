#include "studies/rounds/rounds.h"

#include "studies/report/testing/verdicts.h"
#include "studies/rounds/report.h"
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::rounds::rounds_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PublishedRounds published() {
  return read_published_rounds(dear::testing::source_file("docs/study/diloco/published.json"));
}

// Minima as the theorems have them.
MinimaFindings right_minima() {
  MinimaFindings findings;
  const auto add = [&](const char* part, const char* algorithm, const LogisticShape& problem, int cohort,
                       int owners, double rounds, double up, End end = End::reached, double error = 1e-9) {
    findings.runs.push_back({.part = part,
                             .algorithm = algorithm,
                             .problem = problem,
                             .cohort = cohort,
                             .owners = owners,
                             .rounds = rounds,
                             .up = up,
                             .down = rounds * 60,
                             .error = error,
                             .end = end});
  };
  const LogisticShape large{.dimension = 100}, small{.clients = 20, .dimension = 60, .condition = 1000};
  add("large", "gd", large, 100, 100, 10'000, 1e6);
  add("large", "scaffnew", large, 100, 100, 200, 2e4);
  add("large", "compressed-scaffnew", large, 100, 10, 700, 7e3);
  add("large", "compressed-scaffnew", large, 100, 4, 1500, 6e3);
  add("large", "compressed-scaffnew", large, 100, 2, 5000, 1e4);
  for (const double condition : {10'000.0, 1000.0, 100.0}) {
    LogisticShape shape = small;
    shape.condition = condition;
    add("condition", "gd", shape, 20, 20, condition, 60 * condition);
    add("condition", "scaffnew", shape, 20, 20, std::sqrt(condition), 60 * std::sqrt(condition));
    add("condition", "compressed-scaffnew", shape, 20, 2, 4 * std::sqrt(condition),
        24 * std::sqrt(condition));
  }
  for (const int cohort : {10, 50, 100}) add("cohort", "tamuna", large, cohort, 4, 1000, 4e5 / cohort);
  add("owners", "gd", small, 20, 20, 3000, 2e5);
  add("owners", "compressed-scaffnew", small, 20, 2, 1200, 7000);
  add("owners", "compressed-scaffnew", small, 20, 3, 700, 6000);
  add("owners", "compressed-scaffnew", small, 20, 4, 500, 6200);
  add("owners", "compressed-scaffnew", small, 20, 20, 200, 12'000);
  add("methods", "gd", small, 20, 20, 2000, 120'000);
  add("methods", "local-sgd", small, 20, 20, 1000, 60'000, End::stalled, 0.1);
  add("methods", "tamuna", small, 10, 2, 800, 10'000);
  add("absence", "tamuna", small, 10, 2, 800, 10'000);
  findings.rates = {{.clients = 10, .cohort = 5, .owners = 2, .promised = 0.1, .seen = 0.11}};
  findings.beyond = {{.of_largest_chi = 1, .promised = 0.1, .seen = 0.2},
                     {.of_largest_chi = 2.2, .promised = 0.1, .seen = -0.2}};
  findings.of_a_cohort = {{.clients = 20, .cohort = 2, .owners = 2, .promised = 0.1, .seen = 0.05}};
  return findings;
}

testing::WrongResult<MinimaFindings> wrong_run(const std::string& words, std::size_t number,
                                               void (*spoil)(MinimumRun&)) {
  return {words, [=](MinimaFindings& findings) { spoil(findings.runs.at(number)); }};
}

std::size_t place(const char* part, const char* algorithm, std::size_t which = 0) {
  const MinimaFindings right = right_minima();
  for (std::size_t i = 0; i < right.runs.size(); ++i)
    if (right.runs[i].part == part && right.runs[i].algorithm == algorithm && which-- == 0) return i;
  return right.runs.size();
}

TEST(StudyOfRounds, EveryVerdictOnMinimaCanFail) {
  const std::vector<testing::WrongResult<MinimaFindings>> wrong{
      wrong_run("local steps send 45 times", place("large", "scaffnew"),
                [](MinimumRun& one) { one.up *= 2; }),
      {"Masks beside local steps",
       [](MinimaFindings& findings) { findings.runs.at(place("large", "gd")).up /= 2; }},
      wrong_run("one best number of owners between", place("owners", "compressed-scaffnew", 0),
                [](MinimumRun& one) { one.up = 1; }),
      wrong_run("best number of owners is larger", place("owners", "compressed-scaffnew", 2),
                [](MinimumRun& one) { one.down = 1e6; }),
      wrong_run("Rounds of `scaffnew` grow", place("condition", "scaffnew"),
                [](MinimumRun& one) { one.rounds *= 10; }),
      wrong_run("What `scaffnew` saves", place("condition", "scaffnew"),
                [](MinimumRun& one) { one.up *= 10; }),
      wrong_run("Rounds of `compressed-scaffnew` grow", place("condition", "compressed-scaffnew"),
                [](MinimumRun& one) { one.rounds *= 10; }),
      wrong_run("What `compressed-scaffnew` saves", place("condition", "compressed-scaffnew"),
                [](MinimumRun& one) { one.end = End::stalled; }),
      {"Rounds of TAMUNA",
       [](MinimaFindings& findings) { findings.runs.at(place("cohort", "tamuna", 2)).rounds = 500; }},
      {"sends the more, the fewer there are",
       [](MinimaFindings& findings) {
         for (std::size_t i = 0; i < 3; ++i) findings.runs.at(place("cohort", "tamuna", i)).up = 4000;
       }},
      {"shrinks at least as fast as tau", [](MinimaFindings& findings) { findings.rates[0].seen = 0.09; }},
      {"learn 2.2 times as fast",
       [](MinimaFindings& findings) {
         for (RateRun& one : findings.beyond) one.seen = -one.seen;
       }},
      {"counts the cohort instead", [](MinimaFindings& findings) { findings.of_a_cohort[0].seen = 0.1; }},
      wrong_run("the exact minimum is reached, however", place("methods", "tamuna"),
                [](MinimumRun& one) { one.end = End::stalled; }),
      wrong_run("averages of local steps stall", place("methods", "local-sgd"),
                [](MinimumRun& one) { one.error = 1e-9; }),
      wrong_run("drop out bias nothing", place("absence", "tamuna"),
                [](MinimumRun& one) { one.end = End::stalled; }),
      {"variates sum to zero", [](MinimaFindings& findings) {
         for (MinimumRun& one : findings.runs) one.control_sum = 1e-3;
       }}};
  testing::expect_every_verdict_can_fail(right_minima(), wrong, statements_on_minima);
}

AreasFindings right_areas() {
  AreasFindings findings;
  for (const bool exact : {false, true})
    for (const Shards shards : {Shards::alike, Shards::sorted})
      for (const char* const algorithm : {"coda", "codasca"})
        for (const std::int64_t every : {1, 32, 128}) {
          const bool drifts = std::string(algorithm) == "coda" && shards == Shards::sorted;
          findings.runs.push_back({.algorithm = algorithm,
                                   .shards = shards,
                                   .every = every,
                                   .exact = exact,
                                   .rounds = 16'000.0 / static_cast<double>(every),
                                   .areas = {0.8},
                                   .best_areas = {0.8},
                                   .distances = {drifts ? 0.001 * static_cast<double>(every) : 0.001}});
        }
  findings.noise = {{1, 0.08}, {2, 0.04}, {4, 0.02}};
  return findings;
}

TEST(StudyOfRounds, EveryVerdictOnAreasCanFail) {
  const auto of = [](const char* algorithm, std::int64_t least, void (*spoil)(AreaRun&)) {
    return [=](AreasFindings& findings) {
      for (AreaRun& one : findings.runs)
        if (one.algorithm == algorithm && one.every >= least) spoil(one);
    };
  };
  testing::expect_every_verdict_can_fail(
      right_areas(),
      std::vector<testing::WrongResult<AreasFindings>>{
          {"CoDA finds the best AUC", of("coda", 1, [](AreaRun& one) { one.areas = {0.79}; })},
          {"CoDA has that AUC", of("coda", 32, [](AreaRun& one) { one.rounds = 16'000; })},
          {"CODASCA has it", of("codasca", 32, [](AreaRun& one) { one.areas = {0.79}; })},
          {"CoDA drifts", of("coda", 1, [](AreaRun& one) { one.distances = {0.001}; })},
          {"removes the drift", of("codasca", 32, [](AreaRun& one) { one.distances = {0.1}; })},
          {"Clients speed up", [](AreasFindings& findings) { findings.noise[2].squared_distance = 0.08; }}},
      statements_on_areas);
}

// Every lesson with two seeds, whose losses are `loss` of the lesson.
std::vector<Learnt> learnt_with(double (*loss)(const Exchanges&)) {
  const LearningOptions options;
  std::vector<Learnt> all;
  for (const Lesson& lesson : lessons_of(published(), options)) {
    const Exchanges& one = lesson.exchanges;
    Learnt learnt{.lesson = lesson, .learning_rate = 0.01};
    const double bits = bits_of(one.carried), rounds = one.every == 0 ? 1600 : 1600.0 / one.every;
    for (const double seed : {0.0, 1e-4}) {
      const double at_end = loss(one) + seed;
      learnt.by_seed.push_back(
          {.loss = at_end,
           .sent_bytes = rounds * bits,
           .peak_bytes = bits / one.fragments / std::max(1, one.delay),
           .by_bytes = {{0, 3}, {rounds * bits * 0.9, at_end + 0.01}, {rounds * bits, at_end}}});
    }
    all.push_back(std::move(learnt));
  }
  return all;
}

// Means lose with the steps of a round, the outer optimiser loses nothing.
double right_loss(const Exchanges& one) {
  if (one.momentum == 0.5F) return 1.001;
  return one.momentum == 0 ? 1.002 + 1e-5 * one.every : one.momentum == 0.9F && one.every > 0 ? 1.003 : 1;
}

std::vector<Learnt> right_learnt() {
  std::vector<Learnt> learnt = learnt_with(right_loss);
  // Small differences without spread.
  for (Learnt& one : learnt)
    for (Trained& seed : one.by_seed) {
      seed.loss = right_loss(one.lesson.exchanges);
      if (one.lesson.exchanges.every == 0) seed.peak_bytes = 100 * 32;
    }
  return learnt;
}

void lose(std::vector<Learnt>& learnt, const std::function<bool(const Lesson&)>& chosen, double loss) {
  for (Learnt& one : learnt)
    if (chosen(one.lesson))
      for (Trained& seed : one.by_seed) seed.loss = loss;
}

testing::WrongResult<std::vector<Learnt>> losing(const std::string& words,
                                                 std::function<bool(const Exchanges&)> chosen,
                                                 double loss = 2) {
  return {words, [=](std::vector<Learnt>& learnt) {
            lose(learnt, [&](const Lesson& lesson) { return chosen(lesson.exchanges); }, loss);
          }};
}

TEST(StudyOfRounds, EveryVerdictOnLearningCanFail) {
  const auto usual = [](const Exchanges& one) { return one.momentum == 0.9F && one.every > 0; };
  const auto less = [](const Exchanges& one) { return one.momentum == 0.5F && one.every > 0; };
  const auto plain = [](const Exchanges& one) { return one.momentum == 0; };
  const auto cut = [](const Exchanges& one) { return one.fragments > 1 && one.delay == 0; };
  const auto late = [](const Exchanges& one) { return one.delay > 0; };
  testing::expect_every_verdict_can_fail(
      right_learnt(),
      std::vector<testing::WrongResult<std::vector<Learnt>>>{
          losing("momentum 0.9 learns as every-step", usual),
          losing("momentum 0.5 learns as every-step", less),
          losing("Plain means of the replicas", plain),
          losing("learns better than plain means", less, 1.5),
          losing("an outer momentum of 0.5 learns better", less, 1.5),
          losing("the more plain means lose", plain),
          {"To the loss that rounds of H steps end at",
           [](std::vector<Learnt>& learnt) {
             for (Learnt& one : learnt)
               for (Trained& seed : one.by_seed)
                 if (one.lesson.exchanges.every > 0) seed.sent_bytes = 1e9;
           }},
          losing("Fragments that take turns", cut),
          losing("An exchange that travels under", late),
          losing("Outer gradients of 16 bits",
                 [](const Exchanges& one) { return one.carried == Carried::bf16; }),
          losing("Outer gradients of 4 bits",
                 [](const Exchanges& one) { return one.carried == Carried::four_bits; }),
          losing("An exchange in 500 steps", [](const Exchanges& one) { return one.every == 500; }),
          {"send 400 times fewer bytes",
           [](std::vector<Learnt>& learnt) {
             for (Trained& seed : learnt.front().by_seed) seed.sent_bytes /= 2;
           }},
          {"need 100 times less bandwidth",
           [](std::vector<Learnt>& learnt) {
             for (Trained& seed : learnt.front().by_seed) seed.peak_bytes /= 1000;
           }},
          {"Rounds learn as well where",
           [](std::vector<Learnt>& learnt) {
             lose(learnt, [](const Lesson& lesson) { return lesson.apart && lesson.exchanges.every > 0; }, 2);
           }}},
      [](const std::vector<Learnt>& learnt) { return statements_on_learning(published(), learnt); });
}

std::string verdict_on(const std::vector<Learnt>& learnt, const std::string& words) {
  for (const Statement& one : statements_on_learning(published(), learnt))
    if (one.says.find(words) != std::string::npos) return one.verdict();
  return "not there";
}

TEST(StudyOfRounds, WhatAFreeParameterDecidesIsNotComparable) {
  std::vector<Learnt> learnt = right_learnt();
  EXPECT_EQ(verdict_on(learnt, "An exchange in 500 steps"), "holds");
  // A gap that a longer training makes smaller.
  const int longest = LearningOptions{}.longer * LearningOptions{}.sites.steps;
  for (const auto& [shorter, longer] : {std::pair{2.0, 1.0}, {2.0, 1.5}}) {
    lose(learnt, [](const Lesson& one) { return one.exchanges.every == 500; }, shorter);
    lose(
        learnt, [&](const Lesson& one) { return one.exchanges.every == 500 && one.steps == longest; },
        longer);
    EXPECT_EQ(verdict_on(learnt, "An exchange in 500 steps"), "not comparable") << longer;
  }
  // Eight times less as a whole, 160 times in fragments that may take 5 steps.
  for (Learnt& one : learnt)
    if (one.lesson.exchanges.every == 0)
      for (Trained& seed : one.by_seed) seed.peak_bytes = 32;
  EXPECT_EQ(verdict_on(learnt, "need 100 times less bandwidth"), "not comparable");
}

TEST(StudyOfRounds, TakesTheStepSizeOfTheLeastLossOnOtherText) {
  LearningOptions options = quick_study().learning;
  options.learning_rates = {1e-6, 0.02};
  const std::vector<Lesson> lessons{{kEveryStep, false, 40}, {local_sgd(8), true, 40}};
  const std::vector<Learnt> learnt = learn(lessons, options);
  ASSERT_EQ(learnt.size(), 2U);
  for (const Learnt& one : learnt) {
    EXPECT_EQ(one.learning_rate, 0.02);
    EXPECT_EQ(one.by_seed.size(), 2U);
  }
  EXPECT_THAT([&] { find(learnt, {kEveryStep, true, 40}); },
              ThrowsMessage<ConfigError>(HasSubstr("was not studied")));
  options.seeds = 0;
  EXPECT_THAT([&] { learn(lessons, options); }, ThrowsMessage<ConfigError>(HasSubstr("train nothing")));
}

TEST(StudyOfRounds, WritesAFolderForEachPaper) {
  const std::vector<studies::StudyFile> files = study_of_rounds(published(), quick_study());
  ASSERT_EQ(files.size(), 13U);
  const auto content = [&](const std::string& name) {
    for (const studies::StudyFile& one : files)
      if (one.name == name) return one.content;
    return std::string();
  };
  EXPECT_THAT(content("tamuna/README.md"), HasSubstr("| `tamuna` | 10 | 4 |"));
  EXPECT_THAT(content("tamuna/README.md"), HasSubstr("With a cohort of 10 of 20 clients TAMUNA sends"));
  EXPECT_THAT(content("coda/README.md"), HasSubstr("| sorted | `codasca` | 32 |"));
  EXPECT_THAT(content("diloco/README.md"), HasSubstr("| DiLoCo, H 32, momentum 0.5, 4 fragments |"));
  const nlohmann::json minima = nlohmann::json::parse(content("tamuna/results.json"));
  for (const auto& run : minima["runs"])
    if (run["algorithm"] == "gd" || run["algorithm"] == "scaffnew") {
      EXPECT_EQ(run["reals_up"].get<double>(), run["rounds"].get<double>() * run["dimension"].get<double>());
    }
  EXPECT_EQ(nlohmann::json::parse(content("coda/results.json"))["noise"].size(), 2U);
  EXPECT_EQ(nlohmann::json::parse(content("diloco/results.json"))["learnt"].size(),
            lessons_of(published(), quick_study().learning).size());
  for (const studies::StudyFile& one : files)
    if (one.name.ends_with(".svg")) {
      EXPECT_THAT(one.content, HasSubstr("</svg>")) << one.name;
    }
}

TEST(StudyOfRounds, RefusesFiguresThatAreNone) {
  const auto parse = [](const std::string& bits, const std::string& peak) {
    return [=] {
      parse_published_rounds(
          R"({"format": "dear-published-rounds", "version": 1, "source": "x",
              "diloco": {"source": "x", "steps_a_round": 500},
              "streaming": {"source": "x", "times_less_peak_bandwidth": )" +
              peak + R"(, "bits": )" + bits + R"(},
              "opendiloco": {"source": "x", "bits": 16},
              "intellect": {"source": "x", "steps_a_round": 100, "bits": 8, "times_fewer_bytes": 400}})",
          "figures.json");
    };
  };
  EXPECT_NO_THROW(parse("4", "100")());
  EXPECT_THAT(parse("5", "100"), ThrowsMessage<ConfigError>(HasSubstr("expected 4, 8, 16 or 32 bits")));
  EXPECT_THAT(parse("4", "1"), ThrowsMessage<ConfigError>(HasSubstr("expected a number above 1")));
  EXPECT_THAT([] { parse_published_rounds("{", "figures.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
}

}  // namespace
}  // namespace dear::studies::rounds::rounds_test
