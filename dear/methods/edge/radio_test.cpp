// Channels, bandwidth and stragglers against their closed forms.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/methods/edge/channel.h"
#include "dear/methods/edge/drawn_groups.h"
#include "dear/methods/edge/groups_in_test.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/stragglers.h"

namespace dear::methods::edge::radio_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

TEST(Channel, LosesWhatThePageSays) {
  const PathLoss& macro = path_losses().front();
  EXPECT_NEAR(10 * std::log10(path_gain(macro, 1000)), -128.1, 1e-9);
  EXPECT_NEAR(10 * std::log10(path_gain(macro, 100)), -128.1 + 37.6, 1e-9);
}

TEST(Channel, PlacesDevicesUniformlyOnTheRing) {
  const Cell cell;
  const std::vector<double> distances = draw_distances(cell, 20'000, 3);
  // Half of the area lies within sqrt((50^2 + 500^2) / 2).
  const double half = std::sqrt((50.0 * 50 + 500.0 * 500) / 2);
  const auto within = std::count_if(distances.begin(), distances.end(), [&](double d) { return d < half; });
  EXPECT_NEAR(static_cast<double>(within) / 20'000, 0.5, 4 * 0.5 / std::sqrt(20'000));
  EXPECT_GE(*std::min_element(distances.begin(), distances.end()), 50);
  EXPECT_LE(*std::max_element(distances.begin(), distances.end()), 500);
}

TEST(Channel, FadesAsRayleighSays) {
  double sum = 0, above = 0;
  constexpr int kRounds = 40'000;
  for (int round = 0; round < kRounds; ++round) {
    const double gain = draw_fading(5, round, 2);
    sum += gain;
    above += gain > 1 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kRounds, 1, 4 / std::sqrt(kRounds));
  EXPECT_NEAR(above / kRounds, std::exp(-1), 4 * 0.5 / std::sqrt(kRounds));
}

TEST(Channel, BandwidthIsTheInverseOfTheRate) {
  for (const double channel : {1e3, 1e7, 1e12})
    for (const double bandwidth : {1.0, 1e4, 1e8}) {
      const double rate = rate_over(bandwidth, channel);
      EXPECT_NEAR(rate, bandwidth * std::log2(1 + channel / bandwidth), 1e-6 * rate);
      if (rate < 0.99 * most_rate(channel)) {
        EXPECT_NEAR(bandwidth_for_rate(rate, channel), bandwidth, 1e-9 * bandwidth);
      }
    }
  EXPECT_EQ(bandwidth_for_rate(0, 1e6), 0);
  EXPECT_EQ(bandwidth_for_rate(1e6 / std::numbers::ln2, 1e6), INFINITY) << "no bandwidth suffices";
  EXPECT_LT(bandwidth_for_rate(0.99e6 / std::numbers::ln2, 1e6), INFINITY);
}

TEST(Channel, ThatCannotBeIsRefused) {
  EXPECT_THAT(refusal([] { check(Cell{.bandwidth_hz = 0}); }), HasSubstr("the bandwidth of a cell is 0"));
  EXPECT_THAT(refusal([] { check(Cell{.power_watts = NAN}); }), HasSubstr("power of a device"));
  EXPECT_THAT(refusal([] { check(Cell{.nearest_m = 600}); }), HasSubstr("give the shorter first"));
  EXPECT_THAT(refusal([] { check(Cell{.path_loss = "marco"}); }), HasSubstr("did you mean macro"));
}

std::vector<Upload> random_uploads(int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<Upload> uploads;
  for (int device = 0; device < count; ++device)
    uploads.push_back({.bits = 1e5 * (1 + unit(random)),
                       .ready_seconds = 0.05 * unit(random),
                       .channel_hz = std::pow(10, 6 + 3 * unit(random))});
  return uploads;
}

TEST(MinMax, EndsTogetherAndSpendsTheBandwidth) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const std::vector<Upload> uploads = random_uploads(1 + static_cast<int>(seed % 9), seed);
    const Round round = min_max(uploads, 1e6);
    EXPECT_NEAR(std::accumulate(round.bandwidth_hz.begin(), round.bandwidth_hz.end(), 0.0), 1e6, 1e-3);
    for (std::size_t device = 0; device < uploads.size(); ++device) {
      const Upload& one = uploads[device];
      const double band = round.bandwidth_hz[device];
      EXPECT_NEAR(one.ready_seconds + one.bits / (band * std::log2(1 + one.channel_hz / band)), round.seconds,
                  1e-9 * round.seconds)
          << "seed " << seed;
    }
    EXPECT_LE(round.seconds, equal_bands(uploads, 1e6).seconds * (1 + 1e-12));
  }
}

TEST(MinMax, OfTwoIsTheBestOfAGridAndGivesMoreToTheWorseChannel) {
  const std::vector<Upload> uploads{{1e5, 0.01, 1e6}, {1e5, 0.01, 1e8}};
  double best = INFINITY;
  for (int step = 1; step < 100'000; ++step) {
    double slowest = 0;
    for (int device = 0; device < 2; ++device) {
      const double band = (device == 0 ? step : 100'000 - step) * 10.0;
      slowest = std::max(slowest, 0.01 + 1e5 / (band * std::log2(1 + uploads[device].channel_hz / band)));
    }
    best = std::min(best, slowest);
  }
  const Round round = min_max(uploads, 1e6);
  EXPECT_NEAR(round.seconds, best, 1e-4 * best);
  EXPECT_LE(round.seconds, best);
  EXPECT_GT(round.bandwidth_hz[0], round.bandwidth_hz[1]);
}

TEST(MinMax, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal([] { min_max({{1, 0, 1}}, 0); }), HasSubstr("a bandwidth of 0 Hz"));
  EXPECT_THAT(refusal([] { min_max({{1, 0, 0}}, 1); }), HasSubstr("device 0 has a signal of 0"));
  EXPECT_THAT(refusal([] { min_max({{1, 0, 1}, {NAN, 0, 1}}, 1); }), HasSubstr("device 1 has nan bits"));
  EXPECT_EQ(min_max({{0, 3, 1}}, 1).seconds, 3) << "it has nothing to send";
}

TEST(JointScheduling, MostIsTheBestOfAllSubsetsAndGreedyIsNearIt) {
  int greedy_total = 0, most_total = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const std::vector<Upload> uploads = random_uploads(8, seed);
    const double budget = 0.25 + 0.02 * seed;
    std::size_t best = 0;
    for (unsigned subset = 1; subset < 256; ++subset) {
      std::vector<Upload> chosen;
      for (std::size_t device = 0; device < 8; ++device)
        if ((subset >> device & 1U) != 0) chosen.push_back(uploads[device]);
      if (chosen.size() > best && min_max(chosen, 1e6).seconds <= budget) best = chosen.size();
    }
    if (best == 0) continue;
    const Choice greedy = greedy_under(uploads, 1e6, budget), most = most_under(uploads, 1e6, budget);
    EXPECT_EQ(most.devices.size(), best) << "seed " << seed;
    EXPECT_LE(most.round.seconds, budget * (1 + 1e-9));
    EXPECT_LE(greedy.round.seconds, budget);
    EXPECT_LE(greedy.devices.size(), best);
    greedy_total += static_cast<int>(greedy.devices.size());
    most_total += static_cast<int>(best);
  }
  EXPECT_GT(most_total, 20);
  EXPECT_GE(greedy_total, most_total * 9 / 10);
  EXPECT_THAT(refusal([] { greedy_under(random_uploads(4, 1), 1e6, 1e-3); }), HasSubstr("no device ends"));
  EXPECT_THAT(refusal([] { most_under(random_uploads(4, 1), 1e6, 0); }), HasSubstr("a budget of 0 s"));
}

TEST(Stragglers, EndAsOrderStatisticsSay) {
  const ComputeLaw law{.shift_seconds = 0.5, .mean_seconds = 2};
  constexpr int kDevices = 10, kRounds = 20'000;
  std::vector<double> sums(kDevices);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> ends;
    for (int device = 0; device < kDevices; ++device) ends.push_back(draw_compute(law, 3, 1, round, device));
    std::sort(ends.begin(), ends.end());
    for (int k = 0; k < kDevices; ++k)
      sums[static_cast<std::size_t>(k)] += ends[static_cast<std::size_t>(k)] / kRounds;
  }
  for (int k = 1; k <= kDevices; ++k) {
    double expected = 0, variance = 0;
    for (int i = 0; i < k; ++i) {
      expected += 1.0 / (kDevices - i);
      variance += 1.0 / (kDevices - i) / (kDevices - i);
    }
    EXPECT_NEAR(sums[static_cast<std::size_t>(k - 1)], 3 * (0.5 + 2 * expected),
                4 * 6 * std::sqrt(variance / kRounds));
    EXPECT_NEAR(mean_of_kth(law, 3, k, kDevices), 3 * (0.5 + 2 * expected), 1e-12);
  }
  EXPECT_THAT(refusal([&] { mean_of_kth(law, 1, 11, 10); }), HasSubstr("11 of 10 devices"));
  EXPECT_THAT(refusal([] { check(ComputeLaw{.shift_seconds = -1}); }), HasSubstr("computing for -1 s"));
}

TEST(Stragglers, AreLeftOutByCountOrDeadline) {
  EXPECT_THAT(fastest({3, 1, 2, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(by_deadline({3, 1, 2, 1}, 2), ElementsAre(1, 2, 3));
  EXPECT_TRUE(by_deadline({3, 1}, 0.5).empty());
  const ComputeLaw law{.shift_seconds = 1, .mean_seconds = 1};
  int in_time = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) in_time += draw_compute(law, 1, 4, round, 0) <= 2 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(in_time) / kRounds, 1 - std::exp(-1), 4 * 0.5 / std::sqrt(kRounds));
  EXPECT_DOUBLE_EQ(share_within(law, 1, 2), 1 - std::exp(-1));
  EXPECT_EQ(share_within(law, 1, 0.9), 0);
  EXPECT_DOUBLE_EQ(sending_joules(0.1, 3), 0.3);
  EXPECT_DOUBLE_EQ(computing_joules(1e-28, 1e9, 1e9), 0.1);
}

// The reference's cells: 10 MHz, 50 to 500 m, 0.1 to 1 GHz. The paper reports 46 % less latency.
TEST(Paba, OfDrawnCellsTakesALittleOverHalfAsLong) {
  for (const auto& [groups, workers] : {std::pair{20, 1}, {10, 2}, {5, 4}}) {
    double equal = 0, joint = 0;
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      const PabaProblem problem = draw_groups({.groups = groups, .workers = workers, .seed = seed});
      equal += solve_paba(problem, "equal").seconds;
      joint += solve_paba(problem, "joint").seconds;
    }
    EXPECT_LT(joint, 0.56 * equal) << groups << " groups of " << workers;
  }
}

}  // namespace
}  // namespace dear::methods::edge::radio_test
