#include "dear/systems/train_command/train_interleaved.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train_command::train_in_turns_test {
namespace {

using ::testing::ElementsAre;

// Writes down what is asked of it; fails at step `fails_at`.
class FakeJob : public TrainingJob {
 public:
  FakeJob(TrainRun run, std::vector<std::string>& log, std::int64_t fails_at, std::int64_t interrupted_at)
      : run_(std::move(run)), log_(log), fails_at_(fails_at), interrupted_at_(interrupted_at) {
    log_.push_back("start " + run_.policy);
  }
  ~FakeJob() override { log_.push_back("destroy " + run_.policy); }
  void advance(std::int64_t steps, const StepListener& listener) override {
    log_.push_back(fmt::format("{} {}", run_.policy, steps));
    for (std::int64_t i = 0; i < steps; ++i) {
      if (++done_ == fails_at_) throw TransportError("the network is gone");
      listener(done_, 0.5 * static_cast<double>(done_));
    }
  }
  bool interrupted() override { return interrupted_at_ > 0 && done_ >= interrupted_at_; }
  TrainResult end() override {
    log_.push_back("end " + run_.policy);
    return {.policy = run_.policy, .steps = done_};
  }

 private:
  TrainRun run_;
  std::vector<std::string>& log_;
  std::int64_t fails_at_, interrupted_at_;
  std::int64_t done_ = 0;
};

struct Log {
  std::vector<std::string> calls;
  std::vector<TrainRun> runs;
  StartTraining start(std::int64_t fails_at = -1, std::int64_t interrupted_at = -1) {
    return [this, fails_at, interrupted_at](const TrainRun& run) {
      runs.push_back(run);
      return std::make_unique<FakeJob>(run, calls, fails_at, interrupted_at);
    };
  }
};

std::vector<TrainRun> two_policies() { return {{.policy = "serial"}, {.policy = "dear"}}; }

TEST(TrainInTurns, JobsLiveTogetherAndAdvanceInTurn) {
  Log log;
  const auto [results, turns] = train_interleaved(two_policies(), take_turns(2, 31), log.start(), {});
  EXPECT_EQ(turns, take_turns(2, 31));
  EXPECT_THAT(log.calls, ElementsAre("start serial", "start dear", "serial 11", "dear 11", "dear 10",
                                     "serial 10", "dear 10", "serial 10", "end serial", "end dear",
                                     "destroy serial", "destroy dear"));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].policy, "serial");
  EXPECT_EQ(results[1].policy, "dear");
  EXPECT_EQ(results[0].steps, 31);
  EXPECT_EQ(results[1].steps, 31);
}

TEST(TrainInTurns, EachRunKnowsWhichOfItsStepsCount) {
  Log log;
  const std::vector<Turn> turns = take_turns(2, 30);
  train_interleaved(two_policies(), turns, log.start(), {});
  ASSERT_EQ(log.runs.size(), 2U);
  EXPECT_THAT(log.runs[0].counted, ElementsAre(Range{12, 20}, Range{22, 30}));
  EXPECT_EQ(log.runs[1].counted, log.runs[0].counted);
}

TEST(TrainInTurns, TheListenerCountsTheStepsOfAllPolicies) {
  Log log;
  const std::vector<Turn> turns = take_turns(2, 3);
  std::vector<std::string> heard;
  double before = 0;
  train_interleaved(two_policies(), turns, log.start(),
                    [&](const Turn& turn, std::int64_t done, double loss, double seconds) {
                      heard.push_back(fmt::format("{}: {} {}", turn.policy, done, loss));
                      EXPECT_GE(seconds, before);
                      before = seconds;
                    });
  EXPECT_THAT(heard, ElementsAre("0: 1 0.5", "0: 2 1", "0: 3 1.5", "1: 4 0.5", "1: 5 1", "1: 6 1.5"));
}

TEST(TrainInTurns, AnInterruptionEndsAllAfterTheRound) {
  Log log;
  const auto [results, turns] = train_interleaved(two_policies(), take_turns(2, 50), log.start(-1, 15), {});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].steps, 20);
  EXPECT_EQ(results[1].steps, 20);
  ASSERT_EQ(turns.size(), 4U);
  EXPECT_EQ(turns.back().counted, (Range{12, 20}));
}

TEST(TrainInTurns, TheFirstRoundCountsWhereItIsTheOnlyOne) {
  Log log;
  const auto [results, turns] = train_interleaved(two_policies(), take_turns(2, 50), log.start(-1, 1), {});
  EXPECT_EQ(results[0].steps, 10);
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[0].counted, (Range{2, 10}));
}

TEST(TrainInTurns, WhatAJobThrowsEndsAll) {
  Log log;
  EXPECT_THROW(train_interleaved(two_policies(), take_turns(2, 30), log.start(15), {}), TransportError);
  EXPECT_THAT(log.calls, ElementsAre("start serial", "start dear", "serial 10", "dear 10", "dear 10",
                                     "destroy serial", "destroy dear"));
}

}  // namespace
}  // namespace dear::train_command::train_in_turns_test
