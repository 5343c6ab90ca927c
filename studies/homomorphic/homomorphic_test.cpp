#include "studies/homomorphic/homomorphic.h"

#include "studies/homomorphic/findings.h"
#include "studies/report/testing/verdicts.h"
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::homomorphic::homomorphic_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Speeds that nobody measured, of a codec that takes so many seconds for each byte.
Speeds made_up(const SpeedOptions& options, double codec_seconds_per_byte) {
  Speeds speeds{.machine = "made up, 3 cores", .load = 2.5, .sketches = {}, .recommenders = {}};
  const CodecTimes times{.encode_seconds_per_byte = codec_seconds_per_byte};
  const auto add = [&](SketchSpec::Index index, bool exact, Peeling peeling, int ranks, double density) {
    SketchSpec spec = spec_of(kRowsPerKey, index);
    spec.exact = exact;
    speeds.sketches.push_back(
        {.spec = spec, .peeling = peeling, .ranks = ranks, .density = density, .times = times});
  };
  for (const double density : options.densities) {
    for (const SketchSpec::Index index : {SketchSpec::Index::bitmap, SketchSpec::Index::bloom}) {
      add(index, false, Peeling::everyone, 1, density);
      for (const int ranks : options.ranks) add(index, false, Peeling::owners, ranks, density);
    }
    add(SketchSpec::Index::bitmap, true, Peeling::owners, options.ranks.front(), density);
  }
  for (const int ranks : options.ranks)
    speeds.recommenders.push_back(
        {.shape = options.recommender,
         .batch = options.batch,
         .compute_seconds = 1e-3,
         .density = 0.02,
         .sketch = {.spec = spec_of(1.3), .ranks = ranks, .density = 0.02, .times = times}});
  return speeds;
}

std::vector<studies::StudyFile> quick() {
  return study_of_homomorphic_compression(quick_study(), made_up(quick_study().speeds, 1e-10));
}

TEST(HomomorphicStudy, IsTheSameBytesTwice) {
  const std::vector<studies::StudyFile> first = quick(), second = quick();
  std::vector<std::string> names;
  for (const studies::StudyFile& file : first) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("README.md", "results.json", "recovery.svg", "sizes.svg", "throughput.svg",
                                 "losses.svg"));
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].content, second[i].content);
  const std::string& report = first.front().content;
  EXPECT_THAT(report, HasSubstr("made up, 3 cores, load 2.5"));
  for (std::size_t i = 2; i < names.size(); ++i) EXPECT_THAT(report, HasSubstr("(" + names[i] + ")"));
  const auto results = nlohmann::json::parse(first[1].content);
  EXPECT_EQ(results.at("learned").size(), 5U);
  for (const auto& one : results.at("learned")) {
    EXPECT_EQ(one.at("rates")[0].at("test").size(), 2U);
    EXPECT_THAT(report, HasSubstr("`" + one.at("compression").get<std::string>() + "`"));
  }
  EXPECT_GE(results.at("statements").size(), 12U);
  for (const auto& one : results.at("statements")) {
    EXPECT_THAT(report, HasSubstr(one.at("verdict").get<std::string>()));
    EXPECT_GT(one.at("cases"), 0) << one.at("statement");
  }
}

TEST(HomomorphicStudy, RefusesNoSeedsRoundsAndTrials) {
  HomomorphicOptions options = quick_study();
  options.learning.seeds = 0;
  EXPECT_THAT([&] { study_of_homomorphic_compression(options, made_up(options.speeds, 0)); },
              ThrowsMessage<ConfigError>(HasSubstr("seeds")));
  options.speeds.rounds = 0;
  EXPECT_THAT([&] { measure_speeds(options.speeds); }, ThrowsMessage<ConfigError>(HasSubstr("rounds")));
  options.recovery.trials = 0;
  EXPECT_THAT([&] { recovery_rates(options.recovery); }, ThrowsMessage<ConfigError>(HasSubstr("trials")));
  options.recovery = {.keys = {40'000}, .rows_per_key = {2}};
  EXPECT_THAT([&] { recovery_rates(options.recovery); }, ThrowsMessage<ConfigError>(HasSubstr("rows")));
}

std::string verdict_on(const HomomorphicOptions& options, const Findings& findings,
                       const std::string& words) {
  for (const studies::Statement& one : judge(options, findings))
    if (one.says.find(words) != std::string::npos) return one.verdict();
  return "not said";
}

// The findings of somebody who saw what the statements say, at one density and on four ranks.
Findings as_said(const HomomorphicOptions& options) {
  Findings findings{.recovery = {{.keys = 10'000, .rows_per_key = 1.2, .whole = 0, .left = 0.52},
                                 {.keys = 10'000, .rows_per_key = 1.3, .whole = 1}},
                    .exact = {{.sized_for = 1, .trials = 9, .exact = 8, .reported = 1},
                              {.sized_for = 0.5, .trials = 9, .reported = 9}},
                    .floats = {{.rows_per_key = 1.3, .recovered = 1, .relative = 1e-6}},
                    .sizes = sizes_by_density(options.sizes),
                    .index_border = 0.07,
                    .unions = {{.workers = 4, .density = 0.05, .expected = 0.185, .seen = 0.186}},
                    .learned = {},
                    .speeds = made_up(options.speeds, 1e-10)};
  for (const char* const text : {"", kSketch, kExactSketch, kTopK, kRandomBlock}) {
    const Method method = *text ? Method(Compression::parse(text)) : Method();
    findings.learned.push_back({.method = method,
                                .rates = {{.learning_rate = 1,
                                           .by_seed = std::vector<Learned>(
                                               2, {.losses = std::vector<double>(
                                                       static_cast<std::size_t>(options.learning.steps), 0.5),
                                                   .test = 0.4,
                                                   .bytes = text == std::string(kSketch) ? 1.0 : 2.0})}}});
  }
  return findings;
}

TEST(Statements, HoldWhereWhatTheySayWasSeen) {
  const HomomorphicOptions options = quick_study();
  const Findings findings = as_said(options);
  for (const studies::Statement& one : judge(options, findings))
    EXPECT_EQ(one.verdict(), "holds") << one.says;
  // It does so as soon as a Bloom filter takes time.
  Findings slow = findings;
  for (SketchSpeed& one : slow.speeds.sketches)
    if (one.spec.index == SketchSpec::Index::bloom) one.times.decode_seconds_per_byte = 1e-8;
  EXPECT_EQ(verdict_on(options, slow, "adds up faster"), "does not hold");
}

TEST(Statements, EveryVerdictCanFail) {
  const HomomorphicOptions options = quick_study();
  const auto learned = [](const std::function<void(Learned&)>& spoil) {
    return [spoil](Findings& findings) {
      for (std::size_t i = 1; i < findings.learned.size(); ++i)
        for (Learned& run : findings.learned[i].rates[0].by_seed) spoil(run);
    };
  };
  studies::testing::expect_every_verdict_can_fail<Findings>(
      as_said(options),
      {{"come out above",
        [](Findings& findings) {
          for (RecoveryRate& rate : findings.recovery) rate.whole = 0.5;
        }},
       {"recovery collapses", [](Findings& findings) { findings.recovery[0].left = 0; }},
       {"bit for bit", [](Findings& findings) { findings.exact[0].exact = 7; }},
       {"is found out", [](Findings& findings) { findings.exact[1].reported = 8; }},
       {"In fp32", [](Findings& findings) { findings.floats[0].relative = 1e-4; }},
       {"density of the union", [](Findings& findings) { findings.unions[0].seen = 0.1; }},
       {"makes the smaller sketch below",
        [](Findings& findings) {
          for (SizeAt& size : findings.sizes) std::swap(size.bloom, size.bitmap);
        }},
       {"adds up faster",
        [](Findings& findings) {
          for (SketchSpeed& one : findings.speeds.sketches)
            if (one.spec.index == SketchSpec::Index::bloom) one.times.decode_seconds_per_byte = 1e-8;
        }},
       {"32 / (1 + 32",
        [](Findings& findings) {
          for (SizeAt& size : findings.sizes) size.bitmap = 2 * size.bound;
        }},
       {"of this bound", [&](Findings& findings) { findings.speeds = made_up(options.speeds, 1); }},
       {"learns as dense", learned([](Learned& run) { run.losses[3] = 0.6; })},
       {"Schemes that lose", learned([](Learned& run) { run.test = 0.7; })}},
      [&](const Findings& findings) { return judge(options, findings); });
}

// What density and bandwidth decide gets no verdict, and is said.
TEST(Statements, LargestFiguresOfTheAbstractAreFindings) {
  const HomomorphicOptions options = quick_study();
  Findings findings = as_said(options);
  const std::vector<std::string> fast = without_verdict(options, findings);
  ASSERT_EQ(fast.size(), 2U);
  EXPECT_THAT(fast[0], HasSubstr("6.33 times"));
  EXPECT_THAT(fast[0], HasSubstr("at 2 of 2 densities of the union (1 %, 5 %)"));
  EXPECT_THAT(fast[1], HasSubstr("3.74 times"));
  EXPECT_THAT(fast[1], HasSubstr("at 0.1 Gb/s"));
  findings.speeds = made_up(options.speeds, 1);
  const std::vector<std::string> slow = without_verdict(options, findings);
  EXPECT_THAT(slow[0], HasSubstr("it is reached at none of 2 densities of the union, and"));
  EXPECT_THAT(slow[1], HasSubstr("reaches that nowhere"));
}

TEST(Findings, RefuseWhatWasNotStudied) {
  const Findings findings = as_said(quick_study());
  EXPECT_THAT([&] { (void)findings.learned_with(Compression::parse("fp16")); },
              ThrowsMessage<ConfigError>(HasSubstr("fp16")));
  EXPECT_THAT([&] { (void)findings.speed_of(SketchSpec::Index::bitmap, Peeling::owners, 3, 0.05); },
              ThrowsMessage<ConfigError>(HasSubstr("3 ranks")));
}

// No group of 10,000 keys comes out below the threshold, and every one above, as in the literature.
TEST(Recovery, FallsAtTheThreshold) {
  const std::vector<RecoveryRate> rates =
      recovery_rates({.keys = {10'000}, .rows_per_key = {1.2, 1.3}, .trials = 20});
  EXPECT_EQ(rates[0].whole, 0);
  EXPECT_NEAR(rates[0].left, 0.5, 0.1);
  EXPECT_EQ(rates[0].rounds, 0);
  EXPECT_EQ(rates[1].whole, 1);
  EXPECT_EQ(rates[1].left, 0);
  EXPECT_NEAR(rates[1].rounds, 19, 4);
}

TEST(Losslessness, IsThatOfIntegersAndNearlyThatOfFloats) {
  const LosslessnessOptions options{
      .elements = 3000, .workers = {2, 4}, .trials = 4, .elements_of_floats = 40'000};
  for (const ExactSums& sums : exact_sums(options)) {
    EXPECT_EQ(sums.exact + sums.reported, 4);
    if (sums.sized_for < 1) {
      EXPECT_EQ(sums.reported, 4);
    } else {
      EXPECT_GT(sums.exact, 0);
    }
  }
  for (const FloatError& error : float_errors(options)) {
    EXPECT_GT(error.recovered, 0);
    EXPECT_LE(error.relative, 1e-5);
    EXPECT_LT(error.plain, 1e-6);
    EXPECT_LE(error.largest, 1e-5);
  }
}

TEST(Sizes, AreThoseOfTheFormula) {
  const SizeOptions options{.elements = 1 << 22, .densities = {0.01, 0.05, 0.25}};
  for (const SizeAt& size : sizes_by_density(options)) {
    EXPECT_LE(size.bitmap, size.bound);
    EXPECT_GT(size.bitmap, 0.9 * size.bound);
    EXPECT_GT(size.owners, size.bitmap);
  }
  const double border = index_border(options);
  EXPECT_NEAR(border, 0.07, 0.02);
  SizeOptions at_border = options;
  at_border.densities = {border};
  const SizeAt size = sizes_by_density(at_border).front();
  EXPECT_NEAR(size.bloom / size.bitmap, 1, 0.01);
}

TEST(Unions, GrowAsChanceLetsThem) {
  for (const UnionAt& one : unions({.elements = 1 << 16, .workers = {2, 4, 64}, .densities = {0.05}})) {
    EXPECT_NEAR(one.seen / one.expected, 1, 0.03);
    EXPECT_GE(one.gain_of_same, one.gain_of_own);
    EXPECT_EQ(one.gain_of_own == 1, one.workers == 64);  // 96 %: it goes dense
  }
}

// 1 Mi elements among 4 ranks, a tenth of them keys.
TEST(Throughput, IsThatOfRings) {
  const studies::Traffic traffic{.elements = 1 << 20, .alpha_seconds = 1e-3};
  SketchSpeed speed{.spec = spec_of(1.3, SketchSpec::Index::bitmap),
                    .peeling = Peeling::everyone,
                    .ranks = 1,
                    .density = 0.1,
                    .times = {.encode_seconds_per_byte = 1e-9,
                              .second_encode_seconds_per_byte = 2e-9,
                              .decode_seconds_per_byte = 3e-9}};
  const studies::Line everyone = sketch_line(traffic, speed, 4);
  EXPECT_NEAR(everyone.start, 12e-3 + 6e-9 * (4 << 20), 1e-12);
  EXPECT_NEAR(everyone.bytes, 1.5 * ((1 << 17) + 1.3 * 1.05 * 0.1 * (4 << 20)), 2e4);
  speed.peeling = Peeling::owners;
  speed.ranks = 4;
  const studies::Line owners = sketch_line(traffic, speed, 4);
  EXPECT_NEAR(owners.start, 12e-3 + 6e-9 * (4 << 20), 1e-12);
  EXPECT_LT(owners.bytes, everyone.bytes);
  EXPECT_NEAR(owners.bytes, 1.5 * (1 << 17) + 0.75 * ((1.3 * 1.05 + 1) * 0.1 * (4 << 20)), 2e4);
  const HomomorphicOptions options{.traffic = traffic};
  const double border = studies::loses_from(owners, studies::dense_line(traffic, 4));
  EXPECT_NEAR(throughput(options, speed, 4, border), 1, 1e-9);
  EXPECT_GT(throughput(options, speed, 4, border / 2), 1);
}

TEST(Speeds, AreMeasuredOfEveryCase) {
  SpeedOptions options = quick_study().speeds;
  options.densities = {0.05};
  options.recommender = {.users = 500, .items = 300};
  const Speeds speeds = measure_speeds(options);
  EXPECT_EQ(speeds.sketches.size(), 6U);  // two indices, by everyone and owners; in int64; with other rows
  for (const SketchSpeed& one : speeds.sketches) {
    EXPECT_GT(one.times.encode_seconds_per_byte, 0);
    EXPECT_GT(one.times.second_encode_seconds_per_byte, 0);
    EXPECT_GT(one.times.decode_seconds_per_byte, 0);
  }
  ASSERT_EQ(speeds.recommenders.size(), 1U);
  EXPECT_GT(speeds.recommenders[0].compute_seconds, 0);
  EXPECT_GT(speeds.recommenders[0].density, 0);
  EXPECT_LE(speeds.recommenders[0].density, speeds.recommenders[0].sketch.density);
}

}  // namespace
}  // namespace dear::studies::homomorphic::homomorphic_test
