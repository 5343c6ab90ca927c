#include "studies/sparse/sparse.h"

#include "studies/report/testing/verdicts.h"
#include "studies/sparse/findings.h"
#include "studies/sparse/stability.h"
#include "studies/sparse/sweeps.h"
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::sparse::sparse_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Speeds that nobody measured: random blocks are the fastest.
Speeds made_up(const SparseOptions& options) {
  Speeds speeds{.machine = "made up, 3 cores", .load = 2.5, .codecs = {}};
  for (const int ranks : options.ranks) {
    for (const Compression& compression : options.measured) {
      const double slowness = compression.scheme == Scheme::random_block ? 1 : 5;
      speeds.codecs.push_back({.compression = compression,
                               .ranks = ranks,
                               .times = {.encode_seconds_per_byte = 1e-10 * slowness,
                                         .decode_seconds_per_byte = 1e-11 * slowness}});
    }
  }
  return speeds;
}

std::vector<studies::StudyFile> quick() {
  return study_of_sparse_communication(quick_study(), made_up(quick_study()));
}

TEST(SparseStudy, OfOneTaskSaysSo) {
  SparseOptions options = quick_study();
  options.accuracy.seeds = 1;
  const std::string report = study_of_sparse_communication(options, made_up(options)).front().content;
  EXPECT_THAT(report, HasSubstr(" (one task); "));
  EXPECT_THAT(report, HasSubstr(" (one task) at "));
  EXPECT_THAT(report, ::testing::Not(HasSubstr("±")));
  EXPECT_THAT(report, ::testing::Not(HasSubstr("inf;")));
}

TEST(SparseStudy, IsTheSameBytesTwice) {
  const std::vector<studies::StudyFile> first = quick(), second = quick();
  std::vector<std::string> names;
  for (const studies::StudyFile& file : first) names.push_back(file.name);
  EXPECT_THAT(names,
              ElementsAre("README.md", "results.json", "learning-rates.svg", "stability.svg", "speed.svg"));
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].content, second[i].content);
  const std::string& report = first.front().content;
  EXPECT_THAT(report, HasSubstr("made up, 3 cores, load 2.5"));
  EXPECT_THAT(report, HasSubstr("(speed.svg)"));
  const auto results = nlohmann::json::parse(first[1].content);
  std::set<std::string> methods;
  for (const auto& one : results.at("accuracies")) {
    methods.insert(one.at("compression").get<std::string>());
    EXPECT_EQ(one.at("rates").size(), 2U);
    EXPECT_EQ(one.at("rates")[0].at("test").size(), 2U);
  }
  for (const char* const name : {"`dense`", "`top-k:0.01,ef`", "### Nesterov", "### Weight decay 0.001"})
    EXPECT_THAT(report, HasSubstr(name));
  EXPECT_EQ(methods.size(), results.at("accuracies").size());
  EXPECT_GE(methods.size(), 50U);
  for (const auto& one : results.at("statements"))
    EXPECT_THAT(report, HasSubstr(one.at("verdict").get<std::string>()));
}

TEST(SparseStudy, RefusesNoSeeds) {
  SparseOptions options = quick_study();
  options.accuracy.seeds = 0;
  EXPECT_THAT([&] { study_of_sparse_communication(options, made_up(options)); },
              ThrowsMessage<ConfigError>(HasSubstr("seeds")));
  EXPECT_THAT([&] { measure_speeds(options.measured, options.ranks, 0); },
              ThrowsMessage<ConfigError>(HasSubstr("rounds")));
}

// The findings of a study whose methods all got the accuracy and the learning rate that is asked for.
Findings findings_of(double dense, double sparse, std::size_t best_of_sparse) {
  const SparseOptions options = quick_study();
  Findings findings{.accuracies = {}, .limits = stability_limits({0.1, 1}), .speeds = made_up(options)};
  const auto add = [&](const Method& method, double accuracy, std::size_t best,
                       const Optimiser& optimiser = {}) {
    MethodAccuracy one{.setting = {method, optimiser}, .rates = {}, .best = best};
    for (const double rate : {0.1, 0.01, 0.001})
      one.rates.push_back({.learning_rate = rate, .by_seed = {{accuracy, accuracy}, {accuracy, accuracy}}});
    findings.accuracies.push_back(one);
  };
  add({}, dense, 0);
  for (const char* const ratio : kRatios) {
    for (const char* const scheme : kSchemes)
      for (const char* const text : {"", ",ef", ",own", ",own,ef", ",scope=model,ef"})
        if (!std::string_view(text).starts_with(",own") || std::string_view(scheme).starts_with("random"))
          add(compression_of(scheme, ratio, text), sparse, best_of_sparse);
  }
  for (const Setting& setting : settings_of_sweeps())
    if (is_of_sweeps_alone(setting)) add(setting.method, sparse, best_of_sparse, setting.optimiser);
  return findings;
}

std::string verdict_on(const Findings& findings, const std::string& words) {
  for (const studies::Statement& one : judge(findings))
    if (one.says.find(words) != std::string::npos) return one.verdict();
  return "not said";
}

TEST(Statements, AreJudgedByWhatWasSeen) {
  const Findings close = findings_of(0.7, 0.69, 2);
  EXPECT_EQ(verdict_on(close, "the abstract"), "holds");
  EXPECT_EQ(verdict_on(close, "Top-k with error feedback"), "holds");
  EXPECT_EQ(verdict_on(close, "as well as random coordinates"), "holds");
  EXPECT_EQ(verdict_on(close, "makes every scheme learn better"), "does not hold");
  EXPECT_EQ(verdict_on(close, "1/ratio times smaller"), "holds in 2 of 4");  // 100 times, of 100 and of 10
  EXPECT_EQ(verdict_on(close, "2p/(2-p)"), "holds");
  EXPECT_EQ(verdict_on(close, "cheapest"), "holds");
  EXPECT_EQ(verdict_on(close, "before the communication, learns as well"), "holds");
  EXPECT_EQ(verdict_on(close, "correction and masking"), "does not hold");
  EXPECT_EQ(verdict_on(close, "Nesterov's form"), "holds");
  EXPECT_EQ(verdict_on(close, "weight decay acts"), "holds");
  EXPECT_EQ(verdict_on(close, "warm-up of the ratio"), "does not hold");
  const Findings far = findings_of(0.7, 0.6, 0);
  EXPECT_EQ(verdict_on(far, "the abstract"), "does not hold");
  EXPECT_EQ(verdict_on(far, "Top-k with error feedback"), "does not hold");
  EXPECT_EQ(verdict_on(far, "1/ratio times smaller"), "does not hold");
  Findings better = close;
  for (MethodAccuracy& one : better.accuracies)
    if (is_of_sweeps_alone(one.setting))
      for (AccuracyAtRate& at_rate : one.rates)
        for (TrainedAccuracy& run : at_rate.by_seed) run.test = 0.8;
  EXPECT_EQ(verdict_on(better, "before the communication, learns as well"), "does not hold");
  EXPECT_EQ(verdict_on(better, "Nesterov's form"), "holds in 3 of 7");  // after, of dense and of schemes
  EXPECT_EQ(verdict_on(better, "warm-up of the ratio"), "holds");
}

// The accuracies of all methods that `chosen` names, at all learning rates.
std::function<void(Findings&)> accuracies(const std::function<bool(const Setting&)>& chosen,
                                          double accuracy) {
  return [chosen, accuracy](Findings& findings) {
    for (MethodAccuracy& one : findings.accuracies)
      if (chosen(one.setting))
        for (AccuracyAtRate& at_rate : one.rates)
          for (TrainedAccuracy& run : at_rate.by_seed) run.test = accuracy;
  };
}

TEST(Statements, EveryVerdictCanFail) {
  const auto is_dense = [](const Setting& setting) {
    return !setting.method && setting.optimiser == Optimiser{};
  };
  const auto has = [](const char* words) {
    return [words](const Setting& setting) {
      return (", " + name_of(setting) + ",").find(words) != std::string::npos;
    };
  };
  // What helps, helps: with feedback, with correction and with a warm-up methods learn as well as dense.
  Findings right = findings_of(0.7, 0.69, 2);
  accuracies([&](const Setting& setting) { return setting.method && !setting.method->feedback; }, 0.6)(right);
  accuracies(has("correction"), 0.7)(right);
  accuracies(has("warmup"), 0.7)(right);
  // At dense SGD's rate, which is the first, feedback makes methods worse.
  for (MethodAccuracy& one : right.accuracies)
    if (one.setting.method && one.setting.method->feedback)
      for (TrainedAccuracy& run : one.rates.front().by_seed) run.test = 0.3;
  const auto all_rates = [](std::size_t best) {
    return [best](Findings& findings) {
      for (MethodAccuracy& one : findings.accuracies) one.best = best;
    };
  };
  studies::testing::expect_every_verdict_can_fail<Findings>(
      right,
      {{"Random-block sparsification", accuracies(is_dense, 0.8)},
       {"as well as random coordinates", accuracies(has("random-k"), 0.9)},
       {"Top-k with error feedback", accuracies(is_dense, 0.8)},
       {"makes every scheme learn better", accuracies(has(",ef"), 0.5)},
       {"1/ratio times smaller", all_rates(0)},
       {"dense SGD's best learning rate", accuracies(has(",ef"), 0.9)},
       {"their own indices", accuracies(has(",own"), 0.9)},
       {"of the whole model", accuracies(has("scope=model"), 0.9)},
       {"2p/(2-p)",
        [](Findings& findings) {
          for (StabilityLimit& limit : findings.limits) limit.feedback *= 1.1;
        }},
       {"is the cheapest",
        [](Findings& findings) {
          for (CodecSpeed& one : findings.speeds.codecs)
            if (one.compression.scheme == Scheme::top_k) one.times.encode_seconds_per_byte = 1e-12;
        }},
       {"before the communication, learns as well", accuracies(has("momentum=0.9,"), 0.4)},
       {"correction and masking", accuracies(has("correction"), 0.4)},
       {"form of momentum", accuracies(
                                [](const Setting& setting) {
                                  return setting.optimiser.nesterov ||
                                         (setting.method && setting.method->nesterov);
                                },
                                0.4)},
       {"weight decay acts",
        accuracies([](const Setting& setting) { return setting.optimiser.decay > 0; }, 0.4)},
       {"warm-up of the ratio", accuracies(has("warmup"), 0.4)}},
      judge);
}

TEST(Statements, AreJudgedByTheSpeedsThatWereMeasured) {
  Findings findings = findings_of(0.7, 0.7, 0);
  for (CodecSpeed& one : findings.speeds.codecs)
    if (one.compression.scheme == Scheme::top_k) one.times.encode_seconds_per_byte = 1e-12;
  EXPECT_EQ(verdict_on(findings, "cheapest"), "does not hold");
  findings.limits[1].feedback *= 1.1;
  EXPECT_EQ(verdict_on(findings, "2p/(2-p)"), "holds in 1 of 2");
}

TEST(Findings, RefuseWhatWasNotStudied) {
  const Findings findings = findings_of(0.7, 0.7, 0);
  EXPECT_THAT([&] { (void)findings.accuracy_of(Compression::parse("fp16")); },
              ThrowsMessage<ConfigError>(HasSubstr("fp16")));
  EXPECT_THAT([&] { (void)findings.speed_of(Compression::parse("fp16"), 4); },
              ThrowsMessage<ConfigError>(HasSubstr("fp16")));
}

TEST(Settings, AreNamedByWhatFollowsTheCommunication) {
  EXPECT_EQ(name_of(Setting{}), "dense");
  EXPECT_EQ(name_of(Setting{.optimiser = {.nesterov = true}}), "dense + Nesterov after");
  EXPECT_EQ(name_of(Setting{.method = Compression::parse("top-k,ef"), .optimiser = {.decay = 0.001}}),
            "top-k:0.01,ef + decay=0.001 after");
}

TEST(Accuracy, IsTheMeanAndTheBestByValidation) {
  const AccuracyAtRate at_rate{
      .learning_rate = 1, .by_seed = {{.validation = 0.5, .test = 0.2}, {.validation = 0.7, .test = 0.4}}};
  EXPECT_DOUBLE_EQ(at_rate.mean_validation(), 0.6);
  EXPECT_DOUBLE_EQ(at_rate.mean_test(), 0.3);
  EXPECT_NEAR(at_rate.deviation(), std::sqrt(0.02), 1e-12);
  AccuracyOptions options = quick_study().accuracy;
  options.learning_rates = {1e-9, 0.1};
  const auto found = search_learning_rates({Setting{}}, options);
  EXPECT_EQ(found.front().best, 1U);
}

TEST(Stability, IsTheLawWithFeedback) {
  for (const StabilityLimit& one : stability_limits({0.01, 0.5, 1})) {
    EXPECT_NEAR(one.feedback / one.law, 1, 1e-3) << one.p;
    EXPECT_NEAR(one.no_feedback, 2, 1e-3) << one.p;
    EXPECT_NEAR(one.momentum_before / one.momentum_after, 1, 1e-2) << one.p;
    EXPECT_LT(one.p < 1 ? one.momentum_after : 0, one.law) << one.p;
  }
}

// 1 Mi elements among 4 ranks: a dense all-reduce moves 1.5 x 4 MiB, one of a tenth a tenth of that.
TEST(Speed, LosesWhereTheBytesSavedAreNotWorthTheTime) {
  const studies::Traffic traffic{.elements = 1 << 20, .alpha_seconds = 1e-3};
  const studies::Line dense = studies::dense_line(traffic, 4);
  EXPECT_DOUBLE_EQ(dense.start, 6e-3);
  EXPECT_DOUBLE_EQ(dense.bytes, 1.5 * (4 << 20));
  CodecSpeed speed{.compression = Compression::parse("random-k:0.125"),
                   .ranks = 4,
                   .times = {.encode_seconds_per_byte = 3e-9, .decode_seconds_per_byte = 1e-9}};
  EXPECT_EQ(payload_bytes(traffic, speed.compression), 1 << 19);
  const studies::Line shared = line_of(traffic, speed);
  EXPECT_DOUBLE_EQ(shared.start, 6e-3 + 4e-9 * (4 << 20));
  EXPECT_DOUBLE_EQ(shared.bytes, 1.5 * (1 << 19));
  const double border = studies::loses_from(shared, dense);
  EXPECT_NEAR(shared.seconds(border), dense.seconds(border), 1e-12);
  EXPECT_LT(shared.seconds(border / 2), dense.seconds(border / 2));
  // Gathered: every rank gets (index, value) of the three others, in half as many rounds.
  speed.compression = Compression::parse("top-k:0.125");
  EXPECT_EQ(payload_bytes(traffic, speed.compression), 1 << 20);
  EXPECT_DOUBLE_EQ(line_of(traffic, speed).bytes, 3 * (1 << 20));
}

}  // namespace
}  // namespace dear::studies::sparse::sparse_test
