#include "dear/tools/bench_collectives/worker_processes.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/launch/testing/launched_command.h"
#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/bench_collectives/benchmark.h"
#include "dear/tools/bench_collectives/uneven_rows.h"

// Libraries in processes of their own: measured, killed and stopped.
namespace dear::bench_collectives::worker_processes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The processes that are ranks of this test, oldest first.
std::vector<pid_t> rank_processes() {
  std::istringstream children(text_of(fmt::format("/proc/self/task/{}/children", ::getpid())));
  std::vector<pid_t> ranks;
  for (pid_t child = 0; children >> child;) {
    if (text_of(fmt::format("/proc/{}/cmdline", child)).find("worker") != std::string::npos) {
      ranks.push_back(child);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

WorkersOptions two_ranks() {
  return {.program = dear::testing::dear_command(),
          .ranks = 2,
          .prepare_bytes = 1 << 16,
          .timeout = std::chrono::seconds(100)};
}

class TwoWorkerProcesses : public ::testing::Test {
 protected:
  const launch::HeldSignals signals;
};

constexpr Command kMeasure{.kind = Command::Kind::measure, .bytes = 4096, .unmeasured = 1, .repetitions = 3};
constexpr Command kVerify{.kind = Command::Kind::verify, .bytes = 4096};

TEST_F(TwoWorkerProcesses, AnswersFromEveryRankAndLeavesNothing) {
  launch::testing::Lifeline lifeline;
  {
    WorkerProcesses workers(find_library("shm"), two_ranks(), signals);
    EXPECT_THAT(workers.wait_ready(), HasSubstr("2 ranks"));
    for (const Reply& reply : workers.ask(kVerify)) {
      EXPECT_EQ(reply.kind, Reply::Kind::right) << reply.text;
    }
    const std::vector<Reply> replies = workers.ask(kMeasure);
    ASSERT_EQ(replies.size(), 2U);
    for (const Reply& reply : replies) {
      ASSERT_EQ(reply.intervals.size(), 3U);
      for (const Interval& interval : reply.intervals) {
        EXPECT_LT(interval.begin_seconds, interval.end_seconds);
      }
    }
    // No rank ends a collective before the other has begun it.
    EXPECT_LT(replies[0].intervals[2].begin_seconds, replies[1].intervals[2].end_seconds);
    workers.end();
    EXPECT_EQ(workers.output(), "");
  }
  lifeline.wait_for_all_to_end();
}

TEST_F(TwoWorkerProcesses, EndsWithItsRanksAtWork) {
  launch::testing::Lifeline lifeline;
  {
    const WorkerProcesses workers(find_library("shm"), two_ranks(), signals);
  }  // before they came
  {
    WorkerProcesses workers(find_library("memcpy"), two_ranks(), signals);
    workers.wait_ready();  // not told to end
  }
  lifeline.wait_for_all_to_end();
}

TEST_F(TwoWorkerProcesses, AKilledRankIsNamed) {
  launch::testing::Lifeline lifeline;
  {
    WorkerProcesses workers(find_library("memcpy"), two_ranks(), signals);
    workers.wait_ready();
    const std::vector<pid_t> ranks = rank_processes();
    ASSERT_EQ(ranks.size(), 2U);
    ::kill(ranks[1], SIGKILL);
    EXPECT_THAT([&] { workers.ask(kMeasure); },
                ThrowsMessage<TransportError>(HasSubstr("rank 1 was killed by signal 9")));
  }
  lifeline.wait_for_all_to_end();
}

TEST_F(TwoWorkerProcesses, AStoppedRankIsNamedAtTheDeadline) {
  launch::testing::Lifeline lifeline;
  {
    WorkerProcesses workers(find_library("memcpy"), two_ranks(), signals);
    workers.wait_ready();
    workers.expect_answers_within(std::chrono::duration<double>(0.01));
    const std::vector<pid_t> ranks = rank_processes();
    ASSERT_EQ(ranks.size(), 2U);
    ::kill(ranks[0], SIGSTOP);
    ::kill(ranks[1], SIGSTOP);
    EXPECT_THAT(
        [&] { workers.ask(kMeasure); },
        ThrowsMessage<TimeoutError>(AllOf(HasSubstr("rank 0, 1 did not answer"), HasSubstr("--timeout"))));
  }
  lifeline.wait_for_all_to_end();
}

TEST_F(TwoWorkerProcesses, AProgramThatIsNoneIsAnErrorOfUse) {
  WorkersOptions options = two_ranks();
  options.program = "/no/such/dear";
  EXPECT_THAT([&] { WorkerProcesses(find_library("shm"), options, signals); },
              ThrowsMessage<ConfigError>(HasSubstr("/no/such/dear")));
}

TEST_F(TwoWorkerProcesses, RanksThatFailToStartSayWhy) {
  launch::testing::Lifeline lifeline;
  {
    WorkersOptions options = two_ranks();
    options.program = "/bin/false";
    WorkerProcesses workers(find_library("shm"), options, signals);
    EXPECT_THAT([&] { workers.wait_ready(); },
                ThrowsMessage<TransportError>(HasSubstr("exited with code 1")));
  }
  lifeline.wait_for_all_to_end();
}

TEST_F(TwoWorkerProcesses, ASignalInterruptsTheWait) {
  launch::testing::Lifeline lifeline;
  {
    WorkerProcesses workers(find_library("memcpy"), two_ranks(), signals);
    ::pthread_kill(::pthread_self(), SIGTERM);  // NOLINT(bugprone-bad-signal-to-kill-thread): it is held
    try {
      workers.wait_ready();
      FAIL() << "not interrupted";
    } catch (const Interrupted& interrupted) {
      EXPECT_EQ(interrupted.signal, SIGTERM);
    }
  }
  lifeline.wait_for_all_to_end();
}

BenchmarkSettings settings_of(const std::vector<std::string>& names, MeasuredOperation operation) {
  BenchmarkSettings settings{.program = dear::testing::dear_command(),
                             .operation = operation,
                             .ranks = 3,
                             .sizes = {4, 1000, 1 << 16},
                             .repeat = 2,
                             .timeout = std::chrono::seconds(100)};
  for (const std::string& name : names) {
    settings.libraries.push_back({.library = &find_library(name)});
  }
  return settings;
}

class BenchmarkOfEachOperation : public ::testing::TestWithParam<MeasuredOperation> {};
TEST_P(BenchmarkOfEachOperation, MeasuresAndVerifiesAllSizes) {
  BenchmarkSettings settings = settings_of({"shm", "memcpy"}, GetParam());
  if (GetParam() == MeasuredOperation::barrier) {
    settings.sizes = {0};
  }
  std::vector<std::int64_t> seen;
  const BenchmarkOutcome outcome =
      run_benchmark(settings, launch::HeldSignals(), [&](std::int64_t bytes) { seen.push_back(bytes); });
  EXPECT_EQ(seen, settings.sizes);
  EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
  EXPECT_EQ(outcome.descriptions.size(), 2U);
  const bool beside = GetParam() == MeasuredOperation::all_to_all_v;  // full blocks, too
  ASSERT_EQ(outcome.results.size(), (beside ? 3 : 2) * settings.sizes.size());
  for (const Result& result : outcome.results) {
    EXPECT_TRUE(result.verified);
    EXPECT_GT(result.seconds.median, 0);
    EXPECT_LE(result.seconds.p10, result.seconds.p90);
  }
}
INSTANTIATE_TEST_SUITE_P(All, BenchmarkOfEachOperation, ::testing::ValuesIn(measured_operations()),
                         [](const auto& tested) {
                           std::string name(name_of(tested.param));
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char letter) { return letter == '-' || letter == '+'; }, '_');
                           return name;
                         });

// Ranks send what the seed says; what carried it has counted.
TEST(Benchmark, ShowsWhatRanksSentInAnAllToAllV) {
  BenchmarkSettings settings = settings_of({"shm"}, MeasuredOperation::all_to_all_v);
  settings.sizes = {12'000};
  settings.seed = 7;
  const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
  EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
  ASSERT_EQ(outcome.results.size(), 2U);
  const auto rows = uneven_rows(7, 3, 1000);
  std::vector<std::int64_t> expected;
  for (std::size_t from = 0; from < 3; ++from)
    expected.push_back(4 * (rows[from][0] + rows[from][1] + rows[from][2] - rows[from][from]));
  EXPECT_EQ(outcome.results[0].sent_bytes, expected);
  EXPECT_EQ(outcome.results[1].operation, MeasuredOperation::all_to_all);
  EXPECT_TRUE(outcome.results[1].sent_bytes.empty());
}

// As training issues them; rivals wait for each of theirs.
TEST(Benchmark, IssuesAhead) {
  for (const MeasuredOperation operation : {MeasuredOperation::pair, MeasuredOperation::all_to_all}) {
    BenchmarkSettings settings = settings_of({"shm", "memcpy"}, operation);
    settings.ahead = 4;
    const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
    EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
    ASSERT_EQ(outcome.results.size(), 2 * settings.sizes.size());
    for (const Result& result : outcome.results) {
      EXPECT_TRUE(result.verified);
      EXPECT_GT(result.seconds.median, 0);
      EXPECT_EQ(result.ahead, result.backend == "shm" ? 4 : 1);
    }
  }
}

TEST(Benchmark, MeasuresOperationsWithWhatProgramsDoAroundThem) {
  for (const MeasuredOperation operation : {MeasuredOperation::pair, MeasuredOperation::all_to_all}) {
    BenchmarkSettings settings = settings_of({"shm", "shm-one-copy", "memcpy"}, operation);
    settings.touch = true;
    const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
    EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
    ASSERT_GE(outcome.results.size(), 2 * settings.sizes.size());
    for (const Result& result : outcome.results) {
      EXPECT_TRUE(result.touched);
      EXPECT_GT(result.seconds.median, 0);
    }
  }
}

TEST(Benchmark, MeasuresWhatRanksUseThatWaitForALateOne) {
  using enum MeasuredOperation;
  for (const MeasuredOperation operation : {pair, broadcast, barrier}) {
    BenchmarkSettings settings = settings_of({"shm"}, operation);
    if (operation == barrier) settings.sizes = {0};
    settings.late_seconds = 0.2;
    const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
    EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
    ASSERT_EQ(outcome.results.size(), settings.sizes.size());
    for (const Result& result : outcome.results) {
      EXPECT_TRUE(result.verified);
      EXPECT_GT(result.seconds.median, 0);
      ASSERT_TRUE(result.waiting_share.has_value());
      EXPECT_GE(*result.waiting_share, 0);
      EXPECT_LT(*result.waiting_share, 0.5);  // who spins, uses all of it
    }
  }
}

TEST(Benchmark, MeasuresWhatComputationAndCommunicationTakeFromEachOther) {
  BenchmarkSettings settings = settings_of({"shm", "memcpy"}, MeasuredOperation::pair);
  settings.sizes = {64, 65536};
  settings.repeat = 2;
  settings.ahead = 4;
  settings.interference = true;
  const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
  EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
  ASSERT_EQ(outcome.results.size(), 6U);
  int computing = 0;
  for (const Result& result : outcome.results) {
    EXPECT_TRUE(result.verified);
    EXPECT_GT(result.seconds.median, 0);
    if (!result.computation_slowdown) continue;
    ++computing;
    EXPECT_EQ(result.label(), "shm, computing");
    EXPECT_GT(*result.computation_slowdown, 0);
  }
  EXPECT_EQ(computing, 2);
}

// Only parameters are shared: what is gathered, and nothing else.
TEST(Benchmark, GathersOneCopyOfTheParameters) {
  using enum MeasuredOperation;
  for (const MeasuredOperation operation : {pair, reduce_scatter, all_gather}) {
    const BenchmarkSettings settings = settings_of({"shm-one-copy"}, operation);
    const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
    EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().reason;
    ASSERT_EQ(outcome.results.size(), settings.sizes.size());
    for (const Result& result : outcome.results) EXPECT_TRUE(result.verified) << name_of(operation);
  }
  const BenchmarkOutcome refused =
      run_benchmark(settings_of({"shm-one-copy"}, broadcast), launch::HeldSignals(), [](std::int64_t) {});
  EXPECT_TRUE(refused.results.empty());
  EXPECT_THAT(refused.notes, ::testing::Contains(HasSubstr("one copy of the parameters")));
}

TEST(Benchmark, EveryDtypeIsVerified) {
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64}) {
    BenchmarkSettings settings = settings_of({"shm"}, MeasuredOperation::pair);
    settings.dtype = dtype;
    settings.sizes = {1000};
    const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [](std::int64_t) {});
    ASSERT_EQ(outcome.results.size(), 1U);
    EXPECT_TRUE(outcome.results.front().verified) << dear::name_of(dtype);
  }
}

// One is killed while the benchmark is under way; the other's results are complete.
TEST(Benchmark, GoesOnWithoutAContestantThatFails) {
  launch::testing::Lifeline lifeline;
  const BenchmarkSettings settings = settings_of({"shm", "memcpy"}, MeasuredOperation::pair);
  const BenchmarkOutcome outcome = run_benchmark(settings, launch::HeldSignals(), [&](std::int64_t bytes) {
    if (bytes == 1000) {
      ::kill(rank_processes().back(), SIGKILL);  // the last rank of the second
    }
  });
  ASSERT_EQ(outcome.failures.size(), 1U);
  EXPECT_EQ(outcome.failures.front().library, "memcpy");
  const auto of = [&](const std::string& backend) {
    return std::count_if(outcome.results.begin(), outcome.results.end(),
                         [&](const Result& result) { return result.backend == backend; });
  };
  EXPECT_EQ(of("shm"), 3);
  EXPECT_EQ(of("memcpy"), 1);
  lifeline.wait_for_all_to_end();
}

}  // namespace
}  // namespace dear::bench_collectives::worker_processes_test
