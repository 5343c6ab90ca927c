#include "studies/aggregation/star.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/single.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::studies::aggregation::star_test {
namespace {

using backends::testing::fresh_rendezvous;
using backends::testing::make_shm_threads;
using backends::testing::meet_as;
using backends::testing::run_in_processes;
using comm::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A worker with this body, or the aggregator that serves until all have finished.
void run_rank(const Group& group, const std::function<void(Worker&)>& body) {
  if (group.rank() == group.size() - 1) {
    Aggregator aggregator(group);
    while (aggregator.serve()) {
    }
    return;
  }
  Worker worker(group);
  body(worker);
  worker.finish();
}

std::vector<std::string> with_aggregator(int workers, const std::function<void(Worker&)>& body) {
  return run_on_threads(make_shm_threads(workers + 1), {}, [&](Group& group) { run_rank(group, body); });
}

std::vector<std::string> over_messages(int workers, const std::function<void(Worker&)>& body) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : channels::testing::make_thread_channels(workers + 1))
    backends.push_back(message_programs::make_program_backend(std::move(channels)));
  return run_on_threads(std::move(backends), {}, [&](Group& group) { run_rank(group, body); });
}

// Vectors of several pieces, and of none.
void add_and_combine(Worker& worker) {
  const int rank = worker.rank();
  for (const std::int64_t count : {0, 1, 70'001, 17}) {
    const Payload mine = worker.prepare({.words = count, .values = 2 * count, .dtype = DType::i64});
    const std::span<std::int64_t> values = mine.values_as<std::int64_t>();
    ASSERT_EQ(mine.words.size(), static_cast<std::size_t>(count));
    ASSERT_EQ(values.size(), static_cast<std::size_t>(2 * count));
    std::iota(values.begin(), values.end(), std::int64_t{rank});
    std::fill(mine.words.begin(), mine.words.end(), std::uint64_t{1} << rank);
    std::vector<std::int64_t> came;
    const Payload all = worker.exchange([&](const Payload& sums, std::int64_t there) {
      EXPECT_EQ(std::ranges::count(sums.words, 7U), count);
      if (there > 0) {
        EXPECT_EQ(sums.values_as<std::int64_t>()[static_cast<std::size_t>(there - 1)], 3 * there);
      }
      came.push_back(there);
    });
    EXPECT_EQ(came.front(), 0);
    EXPECT_EQ(came.back(), 2 * count);
    EXPECT_TRUE(std::ranges::is_sorted(came));
    std::vector<std::int64_t> wanted(values.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = 3 * static_cast<std::int64_t>(i) + 3;
    EXPECT_TRUE(std::ranges::equal(all.values_as<std::int64_t>(), wanted));
  }
}

TEST(Star, AddsAndCombinesWhatAllWorkersSend) {
  EXPECT_THAT(with_aggregator(3, add_and_combine), Each("ok"));
  EXPECT_THAT(over_messages(3, add_and_combine), Each("ok"));
}

TEST(Star, AddsInTheOrderOfWorkers) {
  EXPECT_THAT(with_aggregator(3,
                              [](Worker& worker) {
                                const std::vector<float> by_rank{1e8F, -1e8F, 1};
                                const Payload mine = worker.prepare({.values = 1});
                                mine.values_as<float>()[0] = by_rank[static_cast<std::size_t>(worker.rank())];
                                EXPECT_EQ(worker.exchange().values_as<float>()[0], 1.0F);
                              }),
              Each("ok"));
}

TEST(Star, CountsBytesOfMessages) {
  EXPECT_THAT(with_aggregator(1,
                              [](Worker& worker) {
                                worker.prepare({.words = 10, .values = 3});
                                worker.exchange();
                                EXPECT_EQ(worker.traffic().received, 10 * 8 + 3 * 4);
                                EXPECT_GE(worker.traffic().sent, worker.traffic().received);
                              }),
              Each("ok"));
}

TEST(Star, NamesOnEveryRankTheWorkerWithAnotherSizeShapeOrEnd) {
  const auto reports_where_rank_1 = [](const std::function<void(Worker&)>& differs) {
    return with_aggregator(3, [&](Worker& worker) {
      if (worker.rank() == 1) {
        differs(worker);
      } else {
        worker.prepare({.words = 2, .values = 1000, .label = 7});
        worker.exchange();
      }
    });
  };
  const auto with = [](const Message& message) {
    return [message](Worker& worker) {
      worker.prepare(message);
      worker.exchange();
    };
  };
  for (const auto& differs : {std::function<void(Worker&)>(with({.words = 2, .values = 999'999, .label = 7})),
                              std::function<void(Worker&)>(with({.words = 2, .values = 1000, .label = 8})),
                              std::function<void(Worker&)>([](Worker&) {})}) {
    const std::vector<std::string> reports = reports_where_rank_1(differs);
    for (std::size_t rank : {0U, 2U, 3U}) EXPECT_THAT(reports[rank], HasSubstr("worker rank 1"));
    EXPECT_THAT(reports[3], HasSubstr("MismatchError"));
  }
}

void fail_as_rank_2(Worker& worker) {
  worker.prepare({.values = 100'000});
  if (worker.rank() == 2) {
    worker.abort("its disk is full");
    throw TransportError("rank 2 stops: its disk is full");
  }
  worker.exchange();
}

TEST(Star, EndsOnAllRanksWhenAWorkerFails) {
  EXPECT_THAT(with_aggregator(3, fail_as_rank_2), Each(AllOf(HasSubstr("rank 2"), HasSubstr("disk"))));
  EXPECT_THAT(over_messages(3, fail_as_rank_2), Each(AllOf(HasSubstr("rank 2"), HasSubstr("disk"))));
}

// Whoever dies while the others wait for what they add up, the aggregator too.
TEST(Star, EndsOnAllRanksWhenAProcessDies) {
  for (const int victim : {1, 3}) {
    const std::string rendezvous = fresh_rendezvous();
    const std::vector<std::string> reports = run_in_processes(4, [&](int rank) {
      const Group group = meet_as(rank, 4, rendezvous);
      if (rank == 3) {
        Aggregator aggregator(group);
        aggregator.serve();
        if (victim == 3) std::raise(SIGKILL);
        aggregator.serve();
        return;
      }
      Worker worker(group);
      for (int step = 0; step < 2; ++step) {
        worker.prepare({.words = 10, .values = 100'000});
        if (rank == victim && step == 1) std::raise(SIGKILL);
        worker.exchange();
      }
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (static_cast<int>(rank) == victim) continue;
      EXPECT_THAT(reports[rank], AllOf(StartsWith("TransportError"),
                                       HasSubstr(fmt::format("rank {}", victim)), HasSubstr("died")));
    }
  }
}

TEST(Star, NeedsAWorker) {
  const Group alone(comm::make_single(), {});
  EXPECT_THROW(Worker{alone}, ConfigError);
  EXPECT_THROW(Aggregator{alone}, ConfigError);
}

}  // namespace
}  // namespace dear::studies::aggregation::star_test
