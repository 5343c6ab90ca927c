#include "studies/lancet/lancet.h"

#include "studies/lancet/report.h"
#include "studies/report/testing/verdicts.h"
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::lancet {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PublishedLancet published() {
  return read_published_lancet(dear::testing::source_file("docs/study/lancet/published.json"));
}

// Iterations of which every statement holds: made of the published figures, under every assumption.
LancetFindings as_published() {
  LancetFindings findings{
      .iterations = {}, .by_pace = {}, .best_fit = {.graphs = 1, .optimal = 1, .mean = 1, .least = 1}};
  for (const PublishedLancet::OfCluster& cluster : published().clusters)
    for (const std::string model : {"gpt2-s-moe", "gpt2-l-moe"})
      for (const PublishedLancet::Gain& gain : cluster.gains)
        for (const int ranks : {16, 32})
          for (const Assumption& assumption : assumptions()) {
            // One of four gains is the largest; the others make up the mean. The gate that is not cut gains
            // as much as the other does here, at most.
            const double of_switch = cluster.gains.front().largest;
            const double largest = std::min(gain.largest, of_switch);
            const double best =
                ranks == 32 && model == "gpt2-l-moe" ? largest : (4 * gain.mean - largest) / 3;
            const double both = 1 / best;
            const double loses = model == "gpt2-l-moe" ? 1.1 : 1.05;
            const double exposed = 0.1;
            findings.iterations.push_back(
                {.model = model,
                 .cluster = cluster.cluster,
                 .gate = find_gate(gain.gate),
                 .ranks = ranks,
                 .assumption = assumption.name,
                 .batch = 8,
                 .all_to_all_seconds = 2,
                 .expert_seconds = 1,
                 .passes = {{"unoptimised", 1.2, 0.9, exposed / (1 - cluster.exposed_less[0].largest)},
                            {"experts", 1, 0.9, exposed / (1 - cluster.exposed_less[1].largest), 8},
                            {"dw", both * 1.05, 0.9, 0.2},
                            {"partition", both * loses, 0.9, 0.2, 4},
                            {"lancet", both, 0.9, exposed, 4}}});
          }
  return findings;
}

// Changes one number of some iterations.
auto with(const std::string& cluster, const std::string& pass, double PassTime::* member, double factor,
          std::vector<Gate> gates = {Gate::in_order, Gate::by_importance}) {
  return [=](LancetFindings& findings) {
    for (Iteration& one : findings.iterations)
      if (one.cluster == cluster && std::find(gates.begin(), gates.end(), one.gate) != gates.end())
        for (PassTime& time : one.passes)
          if (time.passes == pass) time.*member *= factor;
  };
}

auto of_all(void (*spoil)(Iteration&)) {
  return [spoil](LancetFindings& findings) {
    for (Iteration& one : findings.iterations) spoil(one);
  };
}

TEST(StudyOfLancet, EveryVerdictCanFail) {
  const PublishedLancet figures = published();
  std::vector<studies::testing::WrongResult<LancetFindings>> wrong{
      {"A gate that is not cut",
       [](LancetFindings& findings) {
         for (Iteration& one : findings.iterations)
           if (one.gate == Gate::by_importance) one.passes.back().seconds /= 2;
       }},
      {"Each pass alone", of_all([](Iteration& one) { one.passes[2].seconds = 9; })},
      {"gpt2-l-moe loses more", of_all([](Iteration& one) {
         if (one.model == "gpt2-l-moe") one.passes[3].seconds = one.passes[4].seconds;
       })},
      {"gpt2-s-moe loses about", of_all([](Iteration& one) { one.passes[2].seconds *= 1.5; })},
      {"No range is cut", of_all([](Iteration& one) { one.passes.back().parts = 8; })},
      {"Best fit hides", [](LancetFindings& findings) { findings.best_fit.least = 0.5; }}};
  for (const std::string cluster : {"p3dn-64", "p4de-64"}) {
    for (const Gate gate : {Gate::in_order, Gate::by_importance})
      wrong.push_back({fmt::format("Both passes with the gate {} on {}", name_of(gate), cluster),
                       with(cluster, "lancet", &PassTime::seconds, 0.5, {gate})});
    for (const std::string passes : {"unoptimised", "experts"})
      wrong.push_back({fmt::format("less communication is exposed on {} than by {}", cluster, passes),
                       with(cluster, passes, &PassTime::exposed_seconds, 0.1)});
  }
  studies::testing::expect_every_verdict_can_fail(as_published(), wrong, [&](const LancetFindings& findings) {
    return statements_of(figures, findings);
  });
}

// What holds as tabled and not under another assumption is undecided, and so is a figure that is passed over.
TEST(StudyOfLancet, AnAssumptionThatDecidesLeavesTheVerdictOpen) {
  const auto verdict = [](const LancetFindings& findings, const std::string& words) {
    for (const studies::Statement& one : statements_of(published(), findings))
      if (one.says.find(words) != std::string::npos) return one.verdict();
    return std::string("no such statement");
  };
  LancetFindings findings = as_published();
  EXPECT_EQ(verdict(findings, "No range is cut"), "holds");
  for (Iteration& one : findings.iterations)
    if (one.assumption == "16 bits") {
      one.passes[4].parts = 8;
      one.passes[4].seconds *= 0.5;
    }
  EXPECT_EQ(verdict(findings, "No range is cut"), "undecided");
  EXPECT_EQ(verdict(findings, "gate switch on p3dn-64"), "undecided");
  for (Iteration& one : findings.iterations)
    if (one.assumption != "16 bits") one.passes[4].seconds *= 2;
  EXPECT_EQ(verdict(findings, "gate switch on p3dn-64"), "undecided");  // below, and above
  for (Iteration& one : findings.iterations)
    if (one.assumption == "16 bits") one.passes[4].seconds *= 4;
  EXPECT_EQ(verdict(findings, "gate switch on p3dn-64"), "does not hold");
}

TEST(StudyOfLancet, AssumptionsChangeWhatTheySay) {
  const auto of = [](std::size_t assumption, const std::string& cluster) {
    return iteration_of("gpt2-s-moe", cluster, Gate::by_importance, 16, assumptions().at(assumption), false);
  };
  const Iteration tabled = of(0, "p4de-64");
  EXPECT_EQ(tabled.batch, 48);
  EXPECT_LT(of(1, "p4de-64").all_to_all_seconds, 0.6 * tabled.all_to_all_seconds);
  EXPECT_LT(of(2, "p4de-64").expert_seconds, 0.5 * tabled.expert_seconds);
  EXPECT_EQ(of(2, "p4de-64").all_to_all_seconds, tabled.all_to_all_seconds);
  EXPECT_NEAR(of(3, "p4de-64").expert_seconds, 2 * tabled.expert_seconds, 0.1 * tabled.expert_seconds);
  EXPECT_EQ(of(4, "p4de-64").batch, 24);
  EXPECT_NE(of(5, "p4de-64").by("lancet").seconds, tabled.by("lancet").seconds);
  for (std::size_t i = 0; i < assumptions().size(); ++i)
    EXPECT_EQ(concerns(assumptions()[i], "v100"), i != 2 && i != 4) << assumptions()[i].name;
  EXPECT_FALSE(tabled.has("partition"));
  EXPECT_THROW((void)tabled.by("partition"), ConfigError);
  EXPECT_THROW((void)find_gate("top-2"), ConfigError);
}

TEST(StudyOfLancet, BestFitIsNoBetterThanTheBestChoice) {
  const BestFitOutcome outcome = beside_the_optimum({.graphs = 30});
  EXPECT_EQ(outcome.graphs, 30);
  EXPECT_LE(outcome.mean, 1 + 1e-9);
  EXPECT_LE(outcome.least, outcome.mean + 1e-9);
  EXPECT_GT(outcome.optimal, 0);
}

TEST(StudyOfLancet, WritesItsPage) {
  const std::vector<studies::StudyFile> files = study_of_lancet(published(), quick_study());
  ASSERT_EQ(files.size(), 5U);
  EXPECT_EQ(files[0].name, "README.md");
  EXPECT_THAT(files[0].content, HasSubstr("| all-to-all / experts |"));
  // Two gates, on 16 ranks and, under two assumptions, on 32.
  EXPECT_EQ(nlohmann::json::parse(files[1].content)["iterations"].size(), 6U);
  for (std::size_t picture = 2; picture < files.size(); ++picture)
    EXPECT_THAT(files[picture].content, HasSubstr("</svg>"));
}

TEST(StudyOfLancet, RefusesFiguresThatAreNone) {
  const auto parse = [](const std::string& clusters) {
    return [clusters] {
      parse_published_lancet(
          R"({"format": "dear-published-lancet", "version": 1, "source": "x", "most_parts": 4, )"
          R"("ablation_ranks": 32, "clusters": [)" +
              clusters + "]}",
          "figures.json");
    };
  };
  EXPECT_NO_THROW(parse("")());
  EXPECT_THAT(parse("{"), ThrowsMessage<ConfigError>(HasSubstr("figures.json")));
  EXPECT_THAT(parse(R"({"cluster": "p5-64", "gains": [], "exposed_less": []})"),
              ThrowsMessage<ConfigError>(HasSubstr("clusters[0].cluster")));
  EXPECT_THAT(parse(R"({"cluster": "p4de-64", "exposed_less": [],
                        "gains": [{"gate": "top-2", "largest": 1, "mean": 1}]})"),
              ThrowsMessage<ConfigError>(HasSubstr("clusters[0].gains[0].gate")));
  EXPECT_THAT(parse(R"({"cluster": "p4de-64", "gains": [],
                        "exposed_less": [{"than": "tutel", "largest": 1}]})"),
              ThrowsMessage<ConfigError>(HasSubstr("clusters[0].exposed_less[0].than")));
}

}  // namespace
}  // namespace dear::studies::lancet
