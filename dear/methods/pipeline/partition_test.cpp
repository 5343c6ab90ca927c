#include "dear/methods/pipeline/partition.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/models_in_test.h"

namespace dear::methods::pipeline::partition_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

// What a cut costs, from the definitions: the longest time that a stage or a link is busy, and the sum of
// all. Nothing where a stage does not fit.
std::optional<std::pair<double, double>> cost_of(const OperatorDag& dag, const PairCluster& cluster,
                                                 const std::vector<Place>& places,
                                                 const std::vector<int>& cuts) {
  double worst = 0, sum = 0;
  for (std::size_t stage = 0; stage < places.size(); ++stage) {
    const auto d = static_cast<std::size_t>(places[stage].device);
    double work = 0;
    std::int64_t parameters = 0, kept = 0;
    for (int op = cuts[stage]; op < cuts[stage + 1]; ++op) {
      const Operator& o = dag[static_cast<OperatorId>(op)];
      work += o.forward_work + o.input_gradient_work + o.weight_gradient_work;
      parameters += o.parameter_bytes;
      kept += o.kept_bytes;
    }
    double act = 0, grad = 0;
    for (int op = 0; op < cuts[stage]; ++op) {
      bool crosses = false;
      for (int reader = cuts[stage]; reader < static_cast<int>(dag.size()); ++reader)
        for (const OperatorId input : dag[static_cast<OperatorId>(reader)].inputs)
          crosses = crosses || static_cast<int>(input) == op;
      const Operator& o = dag[static_cast<OperatorId>(op)];
      if (crosses) act += static_cast<double>(o.output_bytes);
      if (crosses && o.dtype == DType::f32) grad += static_cast<double>(o.output_bytes);
    }
    if (3 * parameters + places[stage].held * (kept + static_cast<std::int64_t>(act)) >
        places[stage].memory_bytes)
      return std::nullopt;
    const double computing = work / cluster.devices[d].flops_per_second;
    double there = 0, back = 0, latencies = 0;
    if (stage > 0 && places[stage - 1].device != places[stage].device) {
      const auto b = static_cast<std::size_t>(places[stage - 1].device);
      there = act / cluster.bytes_per_second[b][d];
      back = grad / cluster.bytes_per_second[d][b];
      if (act > 0) latencies += cluster.latency_seconds[b][d];
      if (grad > 0) latencies += cluster.latency_seconds[d][b];
    }
    worst = std::max({worst, computing, there, back});
    sum += computing + there + back + latencies;
  }
  return std::pair(worst, sum);
}

std::vector<int> cuts_of(const std::vector<Range>& ranges) {
  std::vector<int> cuts{static_cast<int>(ranges.front().begin)};
  for (const Range& range : ranges) {
    EXPECT_EQ(range.begin, cuts.back());
    cuts.push_back(static_cast<int>(range.end));
  }
  return cuts;
}

void for_all_cuts(int operators, int stages, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> cuts{0};
  const std::function<void()> extend = [&] {
    if (static_cast<int>(cuts.size()) == stages) {
      cuts.push_back(operators);
      visit(cuts);
      cuts.pop_back();
      return;
    }
    for (int cut = cuts.back() + 1; cut < operators; ++cut) {
      cuts.push_back(cut);
      extend();
      cuts.pop_back();
    }
  };
  extend();
}

TEST(Partition, IsThatOfBruteForce) {
  std::mt19937 random(7);
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const int devices = draw(1, 4), rounds = draw(1, devices > 2 ? 1 : 2), stages = devices * rounds;
    const int operators = draw(stages, 10);
    const OperatorDag dag = random_dag(random, static_cast<std::size_t>(operators));
    const PairCluster cluster = random_cluster(random, static_cast<std::size_t>(devices),
                                               draw(0, 1) == 0 ? kPlenty : draw(500, 3000));
    std::vector<Place> places;
    for (int stage = 0; stage < stages; ++stage)
      places.push_back({.device = stage % devices,
                        .memory_bytes = cluster.devices[0].memory_bytes / rounds,
                        .held = draw(1, 4)});
    std::optional<std::pair<double, double>> best;
    for_all_cuts(operators, stages, [&](const std::vector<int>& cuts) {
      const auto cost = cost_of(dag, cluster, places, cuts);
      if (!cost) return;
      const bool same = best && std::abs(cost->first - best->first) <= 1e-9 * best->first;
      if (!best || (same ? cost->second < best->second : cost->first < best->first)) best = cost;
    });
    const StageCosts costs(dag, cluster);
    const Range all{0, operators};
    if (!best) {
      ++refused;
      EXPECT_THROW((void)best_partition(costs, all, places), ConfigError);
      continue;
    }
    const auto found = cost_of(dag, cluster, places, cuts_of(best_partition(costs, all, places)));
    ASSERT_TRUE(found.has_value());
    EXPECT_NEAR(found->first, best->first, 1e-9 * best->first);
    EXPECT_NEAR(found->second, best->second, 1e-9 * best->second);
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 200);
}

std::vector<Place> places_on(const std::vector<int>& devices, std::int64_t memory = kPlenty, int held = 1) {
  std::vector<Place> places;
  for (const int device : devices) places.push_back({.device = device, .memory_bytes = memory, .held = held});
  return places;
}

TEST(Partition, IsRefusedWithOneSentence) {
  const OperatorDag dag("m", chain_of(3, 1, 8));
  const PairCluster cluster = alike_cluster(4, 1, 1);
  const StageCosts costs(dag, cluster);
  const auto refused = [&](const std::vector<Place>& places, const std::string& message) {
    EXPECT_THAT([&] { (void)best_partition(costs, {0, 3}, places); },
                ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused(places_on({0, 1, 2, 3}), "3 operators are too few for 4 stages");
  refused({}, "a pipeline needs a device");
  refused(places_on({0, 1}, 20), "operator 'op1' alone needs more memory than any stage has");
  refused(places_on({0, 1}, 36), "no cut of 3 operators into 2 stages fits");
  EXPECT_EQ(cuts_of(best_partition(costs, {0, 3}, places_on({0}))), (std::vector<int>{0, 3}));
  EXPECT_THAT([&] { (void)fence_partition(costs, {places_on({0})}, -1); },
              ThrowsMessage<ConfigError>(HasSubstr("fences cannot move by -1")));
  EXPECT_THAT([&] { (void)equal_number(dag, 4); }, ThrowsMessage<ConfigError>(HasSubstr("too few")));
  EXPECT_THAT([&] { (void)equal_work(costs, 4); }, ThrowsMessage<ConfigError>(HasSubstr("too few")));
}

// A copy of tied parameters lies where they are read, once.
TEST(Partition, CountsCopiesOfTiedParameters) {
  std::vector<Operator> operators = chain_of(4, 1, 8);
  operators[0].parameter_bytes = 100;
  operators[2].tied = operators[3].tied = 0;
  const OperatorDag dag("m", operators);
  const PairCluster cluster = alike_cluster(1, 1, 1);
  const StageCosts costs(dag, cluster, {.copies_of_parameters = 2});
  EXPECT_EQ(costs.resident_bytes({0, 4}), 2 * 112);
  EXPECT_EQ(costs.resident_bytes({2, 4}), 2 * 108);
  EXPECT_EQ(costs.resident_bytes({1, 2}), 2 * 4);
  EXPECT_EQ(costs.held_bytes({1, 3}), 2 * 8 + 8);
}

TEST(Fences, StandWhereFewBytesCrossNearTheShare) {
  std::vector<Operator> operators = chain_of(12, 1, 100);
  operators[4].output_bytes = 8;  // cut 5: inside of a window of 1 around 6
  operators[2].output_bytes = 4;  // cut 3: outside
  const OperatorDag dag("m", operators);
  const PairCluster cluster = alike_cluster(4, 1, 1);
  const StageCosts costs(dag, cluster);
  const std::vector<std::vector<Place>> communities{places_on({0, 1}), places_on({2, 3})};
  // Work of 18 a community: 0.2 of it is more than an operator's.
  EXPECT_EQ(fence_partition(costs, communities, 0.2)[1].end, 5);
  EXPECT_EQ(fence_partition(costs, communities, 0)[1].end, 6);
  EXPECT_EQ(fence_partition(costs, communities, 0.6)[1].end, 3);
}

TEST(Fences, GiveSharesByspeed) {
  const OperatorDag dag("m", chain_of(12, 1, 8));
  PairCluster cluster = alike_cluster(3, 1, 1e9);
  cluster.devices[0].flops_per_second = 4;
  const StageCosts costs(dag, cluster);
  EXPECT_EQ(cuts_of(fence_partition(costs, {places_on({0}), places_on({1, 2})}, 0)),
            (std::vector<int>{0, 8, 10, 12}));
  // Two rounds.
  const std::vector<std::vector<Place>> twice{places_on({0}), places_on({1, 2}), places_on({0}),
                                              places_on({1, 2})};
  EXPECT_EQ(cuts_of(fence_partition(costs, twice, 0)), (std::vector<int>{0, 4, 5, 6, 10, 11, 12}));
}

TEST(Rivals, CutByNumberAndByWork) {
  std::vector<Operator> operators = chain_of(6, 1, 8);
  operators[0].forward_work = 16;
  const OperatorDag dag("m", operators);
  const PairCluster cluster = alike_cluster(3, 1, 1);
  const StageCosts costs(dag, cluster);
  EXPECT_EQ(cuts_of(equal_number(dag, 3)), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(cuts_of(equal_number(dag, 4)), (std::vector<int>{0, 1, 3, 4, 6}));
  EXPECT_EQ(cuts_of(equal_work(costs, 2)), (std::vector<int>{0, 1, 6}));
  EXPECT_EQ(cuts_of(equal_work(costs, 3)), (std::vector<int>{0, 1, 2, 6}));
  EXPECT_EQ(cuts_of(equal_work(costs, 6)), (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace dear::methods::pipeline::partition_test
