#include "dear/methods/rounds/exchange.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/shard.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/methods/rounds/auc.h"
#include "dear/methods/rounds/logistic.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::exchange_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::settings_of;

void run_all(int ranks, const comm::testing::GroupBody& body) {
  EXPECT_THAT(comm::testing::run_on_threads(backends::testing::make_shm_threads(ranks), {}, body),
              Each("ok"));
}

// Models after each round, as every rank of so many sees them.
std::vector<std::vector<double>> models_on(int ranks, const Problem& problem, const Settings& settings,
                                           int rounds) {
  std::vector<std::vector<double>> first;
  std::mutex mutex;
  run_all(ranks, [&](Group& group) {
    Rounds run(group, problem, settings);
    std::vector<std::vector<double>> models;
    for (int round = 0; round < rounds && run.next(); ++round)
      models.emplace_back(run.model().begin(), run.model().end());
    models.push_back({run.control_sum()});
    const std::lock_guard lock(mutex);
    if (first.empty()) first = models;
    EXPECT_EQ(models, first) << "rank " << group.rank();
  });
  return first;
}

TEST(Exchange, GivesTheSameBitsOnAnyNumberOfRanks) {
  const auto logistic = make_logistic({.clients = 7, .dimension = 21, .condition = 100, .seed = 3});
  AucProblem auc({.clients = 5, .dimension = 6, .rows = 40, .positive = 0.3});
  struct Case {
    const char* algorithm;
    Settings settings;
  };
  for (const Case& one :
       {Case{"gd", {}}, Case{"local-sgd", {.every = 3, .batch = 2}},
        Case{"fedavg", {.cohort = 3, .absence = 0.2}},
        Case{"scaffold", {.cohort = 4, .every = 3, .absence = 0.4}}, Case{"scaffnew", {}},
        Case{"compressed-scaffnew", {.owners = 3}}, Case{"tamuna", {.cohort = 4, .absence = 0.1}},
        Case{"tamuna", {.cohort = 5, .owners = 2, .batch = 1}},
        Case{"coda", {.every = 4, .absence = 0.2, .batch = 3, .stages = {.count = 3, .steps = 20}}},
        Case{"codasca", {.every = 4, .batch = 3, .stages = {.count = 3, .steps = 22}}}}) {
    SCOPED_TRACE(one.algorithm);
    const Problem& problem =
        find_algorithm(one.algorithm).goal == Goal::saddle ? static_cast<const Problem&>(auc) : *logistic;
    const Settings settings = settings_of(one.algorithm, problem, one.settings);
    const auto alone = models_on(1, problem, settings, 25);
    EXPECT_EQ(models_on(2, problem, settings, 25), alone);
    EXPECT_EQ(models_on(4, problem, settings, 25), alone);
  }
}

// Bytes as the transport counts them, beside a count of each real whose owner is another rank.
TEST(Exchange, SendsWhatTheFormulaSaysAndNoIndices) {
  constexpr int kRanks = 3, kClients = 10, kRounds = 40;
  constexpr std::int64_t kDimension = 53;
  const auto problem = make_logistic({.clients = kClients, .dimension = kDimension, .condition = 100});
  const Settings settings = settings_of("tamuna", *problem, {.cohort = 6, .owners = 2});
  std::vector<Traffic> traffic(kRanks);
  std::vector<std::vector<Round>> drawn(kRanks);
  Counts counts;
  run_all(kRanks, [&](Group& group) {
    Rounds run(group, *problem, settings);
    for (int round = 0; round < kRounds; ++round) {
      run.next();
      drawn[index_of(group.rank())].push_back(run.last_round());
    }
    traffic[index_of(group.rank())] = run.traffic();
    if (group.rank() == 0) counts = run.counts();
  });
  std::vector<std::int64_t> sent(kRanks), received(kRanks);
  const auto home = [](int client) { return client < 3 ? 0 : client < 6 ? 1 : 2; };
  for (const Round& round : drawn[0])
    for (const Sender& sender : round.senders)
      for (std::int64_t k = 0; k < kDimension; ++k) {
        if (((sender.column - 2 * k) % 6 + 6) % 6 >= 2) continue;
        for (int owner = 0; owner < kRanks; ++owner) {
          if (!shard_of(kDimension, DType::f64, kRanks, owner).contains(k) || owner == home(sender.client))
            continue;
          sent[index_of(home(sender.client))] += 8;
          received[index_of(owner)] += 8;
        }
      }
  std::int64_t reals = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Traffic& counted = traffic[index_of(rank)];
    EXPECT_EQ(counted.sent_bytes, sent[index_of(rank)]);
    EXPECT_EQ(counted.received_bytes, received[index_of(rank)]);
    EXPECT_EQ(counted.gathered_bytes,
              kRounds * 8 * (kDimension - shard_of(kDimension, DType::f64, kRanks, rank).size()));
    reals += counted.reals;
  }
  EXPECT_EQ(reals, kRounds * 2 * kDimension) << "each coordinate has 2 owners";
  EXPECT_EQ(counts.rounds, kRounds);
  EXPECT_EQ(counts.up, kRounds * 18) << "ceil(2 * 53 / 6)";
  EXPECT_EQ(counts.down, kRounds * kDimension);
}

TEST(Exchange, SendsNothingInARoundWithoutEnoughClients) {
  const auto problem = make_logistic({.clients = 5, .dimension = 12, .condition = 100});
  Settings settings = settings_of("scaffnew", *problem);
  settings.absence = 0.5;
  run_all(2, [&](Group& group) {
    Rounds run(group, *problem, settings);
    std::vector<double> before;
    std::int64_t given_up = 0;
    for (int round = 0; round < 60; ++round) {
      before.assign(run.model().begin(), run.model().end());
      const Traffic traffic = run.traffic();
      run.next();
      if (run.counts().given_up == given_up) continue;
      given_up = run.counts().given_up;
      EXPECT_EQ(std::vector<double>(run.model().begin(), run.model().end()), before);
      EXPECT_EQ(run.traffic().reals, traffic.reals);
      EXPECT_EQ(run.traffic().sent_bytes, traffic.sent_bytes);
      EXPECT_EQ(run.traffic().gathered_bytes, traffic.gathered_bytes);
    }
    EXPECT_GT(given_up, 30);
    EXPECT_GT(run.counts().rounds, 0);
  });
}

// Where every client sends the same vector, the mean is that vector, whoever is absent. To divide by a number
// of clients that did not all answer would shrink it.
TEST(Exchange, AClientThatDropsOutDoesNotBiasTheMean) {
  const auto problem = make_logistic({.clients = 9, .dimension = 11, .condition = 100});
  std::vector<double> vector(11);
  for (std::size_t k = 0; k < 11; ++k) vector[k] = 0.1 * static_cast<double>(k) - 0.3;
  for (const char* const algorithm : {"tamuna", "fedavg", "local-sgd"}) {
    Settings settings = settings_of(algorithm, *problem,
                                    {.cohort = std::string(algorithm) == "local-sgd" ? 0 : 6, .every = 0});
    settings.absence = 0.4;
    Exchange exchange(testing::alone(), 9, 1);
    int short_rounds = 0;
    for (int number = 0; number < 50; ++number) {
      const Round round = draw_round(settings, 9, number);
      if (round.senders.empty()) continue;
      const int columns = static_cast<int>(round.senders.size());
      short_rounds += columns < settings.cohort ? 1 : 0;
      exchange.reduce(round,
                      settings.algorithm->sent == Sent::masked ? Mask(11, columns, settings.owners)
                                                               : Mask::whole(11, columns),
                      [&](int) { return std::span<const double>(vector); });
      const std::span<const double> mean = exchange.gather();
      for (std::size_t k = 0; k < 11; ++k)
        ASSERT_NEAR(mean[k], vector[k], 1e-15) << algorithm << " " << number;
    }
    EXPECT_EQ(short_rounds > 0, std::string(algorithm) != "tamuna") << algorithm;
  }
}

// Over many rounds each client counts as much as any other, so the mean of means is the mean of all.
TEST(Exchange, ClientsThatMayDropOutCountEquallyOftenInMeans) {
  const auto problem = make_logistic({.clients = 6, .dimension = 5, .condition = 100});
  for (const char* const algorithm : {"tamuna", "fedavg"}) {
    Settings settings = settings_of(algorithm, *problem, {.cohort = 3});
    settings.absence = 0.5;
    Exchange exchange(testing::alone(), 6, 1);
    constexpr int kDrawn = 20'000;
    std::vector<double> sums(5), own(5);
    int made = 0;
    for (int number = 0; number < kDrawn; ++number) {
      const Round round = draw_round(settings, 6, number);
      if (round.senders.empty()) continue;
      ++made;
      const int columns = static_cast<int>(round.senders.size());
      exchange.reduce(round,
                      settings.algorithm->sent == Sent::masked ? Mask(5, columns, settings.owners)
                                                               : Mask::whole(5, columns),
                      [&](int client) {
                        own.assign(5, client == 4 ? 1.0 : 0.0);
                        return std::span<const double>(own);
                      });
      const std::span<const double> mean = exchange.gather();
      for (std::size_t k = 0; k < 5; ++k) sums[k] += mean[k];
    }
    for (const double sum : sums) EXPECT_NEAR(sum / made, 1.0 / 6, 0.01) << algorithm;
  }
}

TEST(Exchange, RanksWithOtherSeedsOrRoundsAreAnErrorOnEach) {
  const Round round{.number = 4, .senders = {{0, 0}, {1, 1}}, .steps = 1};
  const std::vector<double> vector(9);
  for (const bool seeds : {true, false})
    run_all(2, [&](Group& group) {
      Exchange exchange(group, 2, seeds && group.rank() == 1 ? 8 : 7);
      Round mine = round;
      if (!seeds && group.rank() == 1) mine.number = 5;
      EXPECT_NE(testing::refusal<MismatchError>([&] {
                  exchange.reduce(mine, Mask(9, 2, 2), [&](int) { return std::span<const double>(vector); });
                }),
                "not refused");
    });
}

TEST(Exchange, RanksWithOtherSettingsAreAnErrorOnEach) {
  const auto problem = make_logistic({.clients = 4, .dimension = 6, .condition = 10});
  run_all(2, [&](Group& group) {
    const Settings settings =
        settings_of("scaffnew", *problem, {.gamma = group.rank() == 0 ? 0.0 : 0.01, .probability = 0.5});
    EXPECT_THAT(testing::refusal<MismatchError>([&] { Rounds(group, *problem, settings); }),
                AllOf(HasSubstr("settings of rounds"), HasSubstr("gamma 0.01")));
  });
}

// A problem in which one client's gradient is no number.
class Poisoned final : public Problem {
 public:
  explicit Poisoned(const Problem& problem) : problem_(problem) {}
  [[nodiscard]] std::int64_t dimension() const override { return problem_.dimension(); }
  [[nodiscard]] int clients() const override { return problem_.clients(); }
  [[nodiscard]] Constants constants() const override { return problem_.constants(); }
  void gradient(int client, std::span<const double> point, const Batch& batch,
                std::span<double> out) const override {
    problem_.gradient(client, point, batch, out);
    if (client == 3) out[1] = std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] std::vector<double> optimum() const override { return problem_.optimum(); }

 private:
  const Problem& problem_;
};

TEST(Exchange, AValueThatIsNotFiniteNamesItsClientOnEveryRank) {
  const auto problem = make_logistic({.clients = 4, .dimension = 6, .condition = 10});
  const Poisoned poisoned(*problem);
  const Settings settings = settings_of("gd", poisoned);
  run_all(2, [&](Group& group) {
    Rounds rounds(group, poisoned, settings);
    EXPECT_THAT(testing::refusal<Error>([&] { rounds.next(); }),
                AllOf(HasSubstr("client 3"), HasSubstr("round 0"), HasSubstr("not finite")));
  });
}

}  // namespace
}  // namespace dear::methods::rounds::exchange_test
