#include "dear/comm/group/group.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::group_test {
namespace {

using backends::testing::make_shm_threads;
using backends::testing::report_of;
using comm::make_single;
using comm::testing::run_on_threads;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a test and its backend share: a door that holds collectives up, and what came through it.
struct Door {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;
  std::string aborted;
  std::vector<std::int64_t> labels;  // of the collectives that ran
  std::promise<void> backend_gone;

  void open() {
    {
      const std::lock_guard lock(mutex);
      is_open = true;
    }
    changed.notify_all();
  }
};

// A group of one whose collectives wait for the door; label 13 fails.
class Doorkeeper final : public Backend {
 public:
  explicit Doorkeeper(std::shared_ptr<Door> door) : door_(std::move(door)) {}
  ~Doorkeeper() override { door_->backend_gone.set_value(); }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string description() const override { return "a door"; }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return comm::make_single()->allocate(bytes, deadline);
  }

  Timing run(const Request& request, Deadline deadline) override {
    std::unique_lock lock(door_->mutex);
    const bool ready = door_->changed.wait_until(lock, deadline.at(),
                                                 [&] { return door_->is_open || !door_->aborted.empty(); });
    if (!door_->aborted.empty()) {
      throw TransportError(door_->aborted);
    }
    if (!ready) {
      throw TimeoutError("the door stayed shut");
    }
    if (request.label == 13) {
      throw TransportError("label 13 brings bad luck");
    }
    door_->labels.push_back(request.label);
    return {};
  }
  void abort(const std::string& reason) noexcept override {
    {
      const std::lock_guard lock(door_->mutex);
      door_->aborted = reason;
    }
    door_->changed.notify_all();
  }

 private:
  std::shared_ptr<Door> door_;
};

class GroupTest : public ::testing::Test {
 protected:
  static Request labelled(std::int64_t label) { return {.collective = Collective::barrier, .label = label}; }
  Group group(std::chrono::duration<double> timeout = std::chrono::seconds(60)) {
    return Group(std::make_unique<Doorkeeper>(door_), {.timeout = timeout});
  }
  std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

TEST_F(GroupTest, RunsInIssueOrderAndContinuesBeforeTheHandleIsDone) {
  Group one = group();
  const Group copy = one;
  std::vector<std::int64_t> continued;
  door_->is_open = false;
  std::vector<Pending> pending;
  for (std::int64_t i = 0; i < 10; ++i) {
    Group& either = i % 2 == 0 ? one : const_cast<Group&>(copy);
    pending.push_back(either.issue(labelled(i), [&continued, i](const CollectiveResult& result) {
      EXPECT_FALSE(result.error);
      continued.push_back(i);
    }));
    EXPECT_FALSE(pending.back().done());
  }
  door_->open();
  pending.back().wait();
  EXPECT_THAT(continued, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(door_->labels, continued);
  for (const Pending& each : pending) {
    EXPECT_TRUE(each.done());
  }
}

TEST_F(GroupTest, LetsAContinuationIssueMore) {
  Group one = group();
  std::promise<Pending> next;
  one.issue(labelled(1), [&](const CollectiveResult&) { next.set_value(one.issue(labelled(2))); });
  next.get_future().get().wait();
  EXPECT_THAT(door_->labels, ElementsAre(1, 2));
}

TEST_F(GroupTest, TellsAContinuationThatWaitsForItsOwnGroup) {
  Group one = group();
  std::string waited;
  std::string allocated;
  one.issue(labelled(1),
            [&](const CollectiveResult&) {
              waited = report_of([&] { one.issue(labelled(2)).wait(); });
              allocated = report_of([&] { static_cast<void>(one.allocate(8)); });
            })
      .wait();
  EXPECT_THAT(waited, HasSubstr("continuation"));
  EXPECT_THAT(allocated, HasSubstr("continuation"));
}

TEST_F(GroupTest, EndsWithTheFirstFailure) {
  Group one = group();
  door_->is_open = false;
  std::vector<std::string> outcomes;
  const auto note = [&](const CollectiveResult& result) {
    outcomes.push_back(result.error ? report_of([&] { std::rethrow_exception(result.error); }) : "ok");
  };
  const Pending before = one.issue(labelled(1), note);
  const Pending failing = one.issue(labelled(13), note);
  const Pending after = one.issue(labelled(2), note);
  door_->open();
  const std::string failure = "TransportError: label 13 brings bad luck";
  EXPECT_EQ(report_of([&] { before.wait(); }), "ok");
  EXPECT_EQ(report_of([&] { failing.wait(); }), failure);
  EXPECT_EQ(report_of([&] { after.wait(); }), failure);
  EXPECT_EQ(report_of([&] { after.wait(); }), failure);
  EXPECT_EQ(report_of([&] { one.issue(labelled(3)); }), failure);
  EXPECT_EQ(report_of([&] { static_cast<void>(one.allocate(8)); }), failure);
  EXPECT_THAT(outcomes, ElementsAre("ok", failure, failure));
  EXPECT_THAT(door_->labels, ElementsAre(1));
}

TEST_F(GroupTest, EndsWhenAContinuationThrows) {
  Group one = group();
  const Pending pending =
      one.issue(labelled(1), [](const CollectiveResult&) { throw ConfigError("no such optimiser"); });
  EXPECT_EQ(report_of([&] { pending.wait(); }), "ConfigError: no such optimiser");
  EXPECT_EQ(report_of([&] { one.barrier(); }), "ConfigError: no such optimiser");
  EXPECT_THAT(door_->aborted, HasSubstr("no such optimiser"));
}

TEST_F(GroupTest, RefusesARequestThatNoRankCouldRunAndLivesOn) {
  Group one = group();
  EXPECT_THROW(one.all_reduce({.count = 1}, Reduction::sum), ConfigError);
  EXPECT_THROW(one.broadcast({}, 1), ConfigError);
  EXPECT_THROW(static_cast<void>(one.allocate(-1)), ConfigError);
  EXPECT_EQ(report_of([&] { one.barrier().wait(); }), "ok");
}

TEST_F(GroupTest, RefusesATimeoutThatIsNone) {
  EXPECT_THROW(Group(comm::make_single(), {.timeout = std::chrono::seconds(0)}), ConfigError);
  EXPECT_THROW(Group(comm::make_single(), {.timeout = std::chrono::duration<double>(1e300)}), ConfigError);
}

TEST_F(GroupTest, AbortWakesACollectiveThatWaits) {
  door_->is_open = false;
  Group one = group();
  const Pending pending = one.issue(labelled(1));
  one.abort("the disk is full");
  EXPECT_THAT(report_of([&] { pending.wait(); }), ContainsRegex("^TransportError: rank 0 .*disk"));
  EXPECT_THAT(report_of([&] { one.barrier(); }), HasSubstr("disk"));
}

TEST_F(GroupTest, FinishesQueuedWorkWhenDropped) {
  door_->is_open = false;
  std::thread opener;
  {
    Group one = group();
    for (std::int64_t i = 0; i < 5; ++i) {
      one.issue(labelled(i));
    }
    opener = std::thread([this] { door_->open(); });
  }
  opener.join();
  EXPECT_THAT(door_->labels, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(GroupTest, IsDroppedWithinTheTimeoutOfWorkThatNeverEnds) {
  door_->is_open = false;
  std::vector<Pending> pending;
  {
    Group one = group(std::chrono::milliseconds(300));  // in which all of them can be issued
    for (std::int64_t i = 0; i < 200; ++i) {
      pending.push_back(one.issue(labelled(i)));
    }
  }
  for (const Pending& each : pending) {
    EXPECT_EQ(report_of([&] { each.wait(); }), "TimeoutError: the door stayed shut");
  }
}

TEST_F(GroupTest, MayBeDroppedLastByAContinuation) {
  door_->is_open = false;
  {
    auto last = std::make_shared<Group>(group());
    Group& one = *last;
    one.issue(labelled(1), [last = std::move(last)](const CollectiveResult&) {});
  }
  door_->open();
  door_->backend_gone.get_future().get();
  EXPECT_THAT(door_->labels, ElementsAre(1));
}

TEST_F(GroupTest, LetsGoOfBuffersBeforeTheHandleIsDone) {
  Group one = group();
  std::weak_ptr<Buffer::Region> region;
  Pending pending;
  {
    Buffer buffer = one.allocate(64);
    region = buffer.region();
    pending = one.all_gather({.buffer = buffer, .count = 16});
  }
  pending.wait();
  EXPECT_TRUE(region.expired());
}

TEST(Pending, ThatIsNobodysIsDone) {
  EXPECT_TRUE(Pending().done());
  EXPECT_EQ(report_of([] { Pending().wait(); }), "ok");
}

TEST(GroupOfOne, IsAGroup) {
  Group group(comm::make_single(), {});
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.description(), "single, 1 rank");
  EXPECT_EQ(group.modelled_network(), "");
  EXPECT_EQ(group.allocate(0).bytes(), 0);
  const Buffer buffer = group.allocate(100);
  EXPECT_EQ(buffer.bytes(), 100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
  EXPECT_THAT(std::vector(buffer.data(), buffer.data() + 100), Each(std::byte{0}));
  EXPECT_THAT(report_of([&] { static_cast<void>(group.allocate(std::int64_t{1} << 50)); }),
              ContainsRegex("^TransportError: .* 1048576 GiB"));
}

TEST(GroupOfThreads, AbortReachesThePeers) {
  const auto reports = run_on_threads(make_shm_threads(3), {}, [](Group& group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      group.abort("the disk is full");
    }
    group.barrier().wait();
  });
  EXPECT_THAT(reports, Each(ContainsRegex("^TransportError: rank 1 .*disk")));
}

TEST(GroupOfThreads, GivesUpOnARankThatDoesNotCome) {
  std::promise<void> others_done;
  const auto reports =
      run_on_threads(make_shm_threads(2), {.timeout = std::chrono::seconds(1)}, [&](Group& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
          return others_done.get_future().get();
        }
        const std::string report = report_of([&] { group.barrier().wait(); });
        others_done.set_value();
        EXPECT_THAT(report, HasSubstr("TimeoutError: rank 1 "));
        EXPECT_THAT(report, HasSubstr("collective 2, barrier"));
      });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GroupOfThreads, NamesARankThatLeft) {
  const auto reports = run_on_threads(make_shm_threads(3), {}, [](Group& group) {
    group.barrier().wait();
    if (group.rank() != 1) {
      group.barrier().wait();
    }
  });
  EXPECT_EQ(reports[1], "ok");
  EXPECT_THAT(reports[0], ContainsRegex("^TransportError: rank 1 left .*collective 2"));
  EXPECT_EQ(reports[0], reports[2]);
}

TEST(GroupOfThreads, LetsRanksGoAsSoonAsTheyAreDone) {
  for (int round = 0; round < 200; ++round) {
    const auto reports = run_on_threads(make_shm_threads(4), {}, [](Group& group) {
      Buffer buffer = group.allocate(64);
      group.all_reduce({.buffer = buffer, .count = 16}, Reduction::sum).wait();
    });
    ASSERT_THAT(reports, Each("ok"));
  }
}

TEST(GroupOfThreads, FailsEverywhereWhenMemoryCannotBeHad) {
  for (const std::int64_t bytes : {std::int64_t{1} << 50, std::int64_t{1} << 62}) {
    const auto reports = run_on_threads(make_shm_threads(3), {}, [&](Group& group) {
      EXPECT_EQ(group.allocate(1000).bytes(), 1000);
      static_cast<void>(group.allocate(bytes));
    });
    EXPECT_THAT(reports, Each(HasSubstr("TransportError: cannot allocate")));
    EXPECT_THAT(reports, Each(reports[0]));
  }
}

TEST(GroupOfThreads, RefusesABufferOfAnotherGroup) {
  const auto reports = run_on_threads(make_shm_threads(2), {}, [](Group& group) {
    Group other(comm::make_single(), {});
    group.all_gather({.buffer = other.allocate(64), .count = 16}).wait();
  });
  EXPECT_THAT(reports, Each(HasSubstr("buffer of another group")));
}

TEST(GroupOfThreads, LeavesNothingBehind) {
  const auto before = backends::testing::holdings();
  Buffer outlives;
  const auto reports = run_on_threads(make_shm_threads(3), {}, [&](Group& group) {
    Buffer buffer = group.allocate(100'000);
    group.barrier().wait();
    if (group.rank() == 0) {
      outlives = buffer;
    }
  });
  EXPECT_THAT(reports, Each("ok"));
  outlives.data()[99'999] = std::byte{1};
  EXPECT_EQ(backends::testing::holdings().segments, before.segments + 1);
  outlives = Buffer();
  EXPECT_EQ(backends::testing::holdings(), before);
}

TEST_F(GroupTest, PerformsBehindWhatWasIssuedBefore) {
  Group one = group();
  door_->is_open = false;
  one.issue(labelled(1));
  std::thread opener([&] { door_->open(); });
  one.perform(labelled(2));
  opener.join();
  one.perform(labelled(3));
  EXPECT_THAT(door_->labels, ElementsAre(1, 2, 3));
}

TEST_F(GroupTest, PerformingFailsLikeIssuing) {
  Group one = group();
  EXPECT_THROW(one.perform({.collective = Collective::broadcast, .root = 7}), ConfigError);
  const std::string report = report_of([&] { one.perform(labelled(13)); });
  EXPECT_EQ(report, "TransportError: label 13 brings bad luck");
  EXPECT_EQ(report_of([&] { one.perform(labelled(1)); }), report);
  EXPECT_EQ(report_of([&] { one.issue(labelled(1)); }), report);
}

TEST_F(GroupTest, PerformingInAContinuationIsRefused) {
  Group one = group();
  std::string report;
  one.issue(labelled(1),
            [&](const CollectiveResult&) { report = report_of([&] { one.perform(labelled(2)); }); })
      .wait();
  EXPECT_THAT(report, HasSubstr("continuation"));
}

TEST(GroupOfThreads, PerformsFromSeveralThreadsOneAfterTheOther) {
  const auto reports = run_on_threads(make_shm_threads(2), {}, [](Group& group) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 100; ++round) group.perform({.collective = Collective::barrier});
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_THAT(reports, Each("ok"));
}

}  // namespace
}  // namespace dear::group_test
