#include "dear/base/launch/launcher.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ostream>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/testing/launched_command.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch::launcher_test {
namespace {

using testing::CommandResult;
using testing::LaunchedCommand;
using testing::Lifeline;
using testing::lines_of;
using testing::run_dear;

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

// By which ranks wait for each other.
struct Fifo {
  Fifo() : path(fmt::format("{}dear_launcher_test_{}", ::testing::TempDir(), ::getpid())) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  ~Fifo() { ::unlink(path.c_str()); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  std::string path;
};

// `dear launch -n RANKS OPTIONS -- sh -c SCRIPT`
std::vector<std::string> launch(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{"launch", "-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

TEST(Launch, StartsEveryRankWithItsNumbers) {
  const CommandResult result =
      run_dear(launch(3,
                      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
                      "$NODE_RANK $MASTER_ADDR"));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_THAT(lines_of(result.output),
              UnorderedElementsAre("[0] 0/3 0/3 0/1 0 127.0.0.1", "[1] 1/3 1/3 0/1 0 127.0.0.1",
                                   "[2] 2/3 2/3 0/1 0 127.0.0.1"));
}

TEST(Launch, GivesAllRanksOneJobAndEveryJobItsOwn) {
  std::set<std::string> jobs;
  for (int job = 0; job < 2; ++job) {
    const auto lines =
        lines_of(run_dear(launch(2, "echo $TORCHELASTIC_RUN_ID $MASTER_PORT", {"--no-prefix"})).output);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0], lines[1]);
    jobs.insert(lines[0]);
  }
  EXPECT_EQ(jobs.size(), 2U);
}

TEST(Launch, TakesTheProgramWithOrWithoutADashDashAndLeavesItsOptionsAlone) {
  EXPECT_EQ(run_dear({"launch", "-n", "1", "echo", "-n", "2", "--help", "--", "launch"}).output,
            "[0] 2 --help -- launch\n");
  EXPECT_EQ(run_dear({"launch", "-n", "1", "--", "echo", "x", "--grace", "--", "y"}).output,
            "[0] x --grace -- y\n");
}

TEST(Launch, BindsRanksToTheirPartsOfTheCores) {
  const std::vector<int> cores = usable_cores();
  const int ranks = static_cast<int>(cores.size());
  const std::string script = "grep Cpus_allowed_list /proc/self/status | cut -f 2";
  std::vector<std::string> apart;
  for (int rank = 0; rank < ranks; ++rank) {
    apart.push_back(fmt::format("[{}] {}", rank, cores[static_cast<std::size_t>(rank)]));
  }
  EXPECT_THAT(lines_of(run_dear(launch(ranks, script, {"--bind"})).output), UnorderedElementsAreArray(apart));
  const CommandResult shared = run_dear(launch(2 * ranks, script, {"--bind"}));
  EXPECT_THAT(lines_of(shared.output), Contains(fmt::format("[1] {}", cores.front())));
  EXPECT_THAT(lines_of(shared.output), Contains(fmt::format("[{}] {}", 2 * ranks - 1, cores.back())));
}

TEST(Launch, PrefixesEveryLineOfBothStreamsAndCompletesTheLast) {
  const CommandResult result = run_dear(launch(1, "printf 'one\\n\\ntwo'; printf 'oops' >&2"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(lines_of(result.output), ElementsAre("[0] one", "[0] ", "[0] two"));
  EXPECT_EQ(result.error, "[0] oops\n");
}

TEST(Launch, PassesOutputAsItIsWithoutPrefix) {
  EXPECT_EQ(run_dear(launch(1, "printf 'one\\ntwo'", {"--no-prefix"})).output, "one\ntwo");
}

TEST(Launch, NeverMixesLinesOfRanks) {
  constexpr int kRanks = 4;
  constexpr int kLines = 200;
  // Each line is written in two pieces.
  const CommandResult result = run_dear(launch(
      kRanks,
      fmt::format("i=0; while [ $i -lt {} ]; do printf \"$RANK$RANK\"; echo \"$RANK:$i\"; i=$((i+1)); done",
                  kLines)));
  std::array<int, kRanks> next{};
  for (const std::string& line : lines_of(result.output)) {
    const int rank = line.at(1) - '0';
    ASSERT_TRUE(rank >= 0 && rank < kRanks) << line;
    EXPECT_EQ(line, fmt::format("[{0}] {0}{0}{0}:{1}", rank, next[static_cast<std::size_t>(rank)]++));
  }
  EXPECT_THAT(next, ::testing::Each(kLines));
}

TEST(Launch, PassesOnALotOfOutputInFull) {
  const CommandResult result = run_dear(launch(2, "head -c 3000000 /dev/zero | tr '\\0' x; echo"));
  const std::size_t letters =
      static_cast<std::size_t>(std::count(result.output.begin(), result.output.end(), 'x'));
  EXPECT_EQ(letters, 6000000U);
}

TEST(Launch, GivesStandardInputToRankZeroAlone) {
  LaunchedCommand command(launch(3, "printf 'read '; cat; echo ."));
  command.write_input("word");
  EXPECT_THAT(lines_of(command.wait().output),
              UnorderedElementsAre("[0] read word.", "[1] read .", "[2] read ."));
}

TEST(Launch, NamesTheRankThatFailedAndExitsWithItsCode) {
  Lifeline lifeline;
  const CommandResult result =
      run_dear(launch(4, "[ $RANK = 2 ] && { echo last words >&2; exit 3; }; exec sleep 1000"));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(lines_of(result.error),
              ElementsAre("[2] last words", ContainsRegex("^dear launch: rank 2 .*code 3;")));
  lifeline.wait_for_all_to_end();
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const CommandResult result = run_dear(launch(2, "[ $RANK = 1 ] && kill -9 $$; exec sleep 1000"));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(result.error, ContainsRegex("^dear launch: rank 1 .*signal 9 .Killed.;.*\n$"));
}

TEST(Launch, DoesNotSpeakOfOthersWhenThereAreNone) {
  const CommandResult result = run_dear(launch(1, "exit 7"));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.error, ContainsRegex("^dear launch: rank 0 .*code 7\n$"));
}

TEST(Launch, LetsTheOtherRanksCleanUp) {
  // Rank 1 fails only when rank 0 has set its trap, which it says through a pipe of theirs.
  const Fifo fifo;
  const CommandResult result = run_dear(launch(
      2,
      fmt::format("if [ $RANK = 1 ]; then read ready < {0}; exit 4; fi; trap 'echo cleaned up; exit 0' TERM; "
                  "echo ready > {0}; sleep 1000 & wait",
                  fifo.path)));
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.output, "[0] cleaned up\n");
}

TEST(Launch, KillsARankThatIgnoresSigtermAfterTheGrace) {
  Lifeline lifeline;
  const Fifo fifo;
  const CommandResult result = run_dear(launch(
      2,
      fmt::format("if [ $RANK = 1 ]; then read ready < {0}; exit 4; fi; trap '' TERM; echo ready > {0}; "
                  "while :; do sleep 1000; done",
                  fifo.path),
      {"--grace", "50ms"}));
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.error, ContainsRegex("rank 0 .*0.05 s .*killed\n$"));
  lifeline.wait_for_all_to_end();
}

TEST(Launch, EndsAStoppedRank) {
  Lifeline lifeline;
  const Fifo fifo;
  // Rank 1 fails after it has itself stopped rank 0, so SIGTERM finds a stopped process.
  const CommandResult result =
      run_dear(launch(2,
                      fmt::format("if [ $RANK = 1 ]; then read pid < {0}; kill -STOP $pid; exit 4; fi; "
                                  "echo $$ > {0}; exec sleep 1000",
                                  fifo.path),
                      {"--grace", "1000s"}));
  EXPECT_EQ(result.code, 4);
  lifeline.wait_for_all_to_end();
}

class ForwardedSignal : public ::testing::TestWithParam<int> {};

TEST_P(ForwardedSignal, ReachesEveryRank) {
  LaunchedCommand command(launch(3,
                                 "end() { echo $1; kill $!; exit 0; }; "
                                 "for s in INT TERM HUP QUIT USR1 USR2; do trap \"end $s\" $s; done; "
                                 "sleep 1000 & echo ready; wait"));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(command.read_line(), EndsWith("ready\n"));
  }
  command.send(GetParam());
  const CommandResult result = command.wait();
  EXPECT_EQ(result.code, 0) << result.error;
  const std::string name = ::sigabbrev_np(GetParam());
  EXPECT_THAT(lines_of(result.output), UnorderedElementsAre("[0] " + name, "[1] " + name, "[2] " + name));
}

INSTANTIATE_TEST_SUITE_P(Launch, ForwardedSignal,
                         ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2),
                         [](const auto& test) { return std::string(::sigabbrev_np(test.param)); });

TEST(Launch, HearsSignalsThoughNobodyReadsItsOutput) {
  Lifeline lifeline;
  LaunchedCommand command(launch(2, "exec yes", {"--grace", "50ms"}));
  EXPECT_THAT(command.read_line(), EndsWith("] y\n"));
  command.send(SIGTERM);
  lifeline.wait_for_all_to_end();  // the launcher, too
  EXPECT_EQ(command.wait().code, 128 + SIGTERM);
}

TEST(Launch, ExitsAsItsRanksDoWhenASignalEndsThem) {
  LaunchedCommand command(launch(2, "echo ready; exec sleep 1000"));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(command.read_line(), EndsWith("ready\n"));
  }
  command.send(SIGTERM);
  EXPECT_EQ(command.wait().code, 128 + SIGTERM);
}

TEST(Launch, KillsWhatIgnoresASignalAfterTheGrace) {
  Lifeline lifeline;
  LaunchedCommand command(
      launch(2, "trap '' TERM; echo ready; while :; do sleep 1000; done", {"--grace", "50ms"}));
  for (int rank = 0; rank < 2; ++rank) ASSERT_THAT(command.read_line(), EndsWith("ready\n"));
  command.send(SIGTERM);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(result.error, HasSubstr("rank 0, 1 did not end within 0.05 s of SIGTERM and is killed\n"));
  lifeline.wait_for_all_to_end();
}

TEST(Launch, EndsAtOnceByASecondSignal) {
  Lifeline lifeline;
  LaunchedCommand command(launch(2, "trap 'echo told' TERM; echo ready; while :; do sleep 1000 & wait; done",
                                 {"--grace", "1000s"}));
  for (int rank = 0; rank < 2; ++rank) ASSERT_THAT(command.read_line(), EndsWith("ready\n"));
  command.send(SIGTERM);
  for (int rank = 0; rank < 2; ++rank) ASSERT_THAT(command.read_line(), EndsWith("told\n"));
  command.send(SIGTERM);
  EXPECT_EQ(command.wait().code, 128 + SIGKILL);
  lifeline.wait_for_all_to_end();
}

TEST(Launch, EndsWhatHasLeftTheGroupOfItsRank) {
  Lifeline lifeline;
  const CommandResult result =
      run_dear(launch(2, "setsid sleep 1000 > /dev/null 2>&1 & [ $RANK = 1 ] && exit 5; exec sleep 1000"));
  EXPECT_EQ(result.code, 5);
  lifeline.wait_for_all_to_end();
}

// Rank 0 ends first, by what it heard of rank 1.
TEST(Launch, SaysTheFirstCauseLastAndOnce) {
  const Fifo fifo;
  const CommandResult result = run_dear(launch(
      2, fmt::format(
             "if [ $RANK = 0 ]; then read heard < {0}; echo '0 it was rank 1' > $DEAR_CAUSES; exit 1; fi; "
             "trap 'echo last; exit 3' TERM; echo '1 ValueError: poison (a.py:3)' > $DEAR_CAUSES; "
             "echo heard > {0}; sleep 1000 & wait",
             fifo.path)));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(
      result.error,
      ContainsRegex("^dear launch: rank 1 failed first, [0-9.]+ s after the start: ValueError: poison "
                    ".a.py:3.\n$"));
}

TEST(Launch, LeavesNothingBehindWhenItIsKilled) {
  Lifeline lifeline;
  // Every rank has a child and a grandchild of its own.
  LaunchedCommand command(launch(3, "sh -c 'sleep 1000 & echo ready; wait' & wait"));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(command.read_line(), EndsWith("ready\n"));
  }
  command.send(SIGKILL);
  EXPECT_EQ(command.wait().code, 128 + SIGKILL);
  lifeline.wait_for_all_to_end();
}

TEST(Launch, EndsTheChildrenOfAFailedJob) {
  Lifeline lifeline;
  const CommandResult result = run_dear(launch(2, "sleep 1000 & [ $RANK = 0 ] && exit 5; wait"));
  EXPECT_EQ(result.code, 5);
  lifeline.wait_for_all_to_end();
}

TEST(Launch, EndsWhatASuccessfulRankLeftRunning) {
  Lifeline lifeline;
  EXPECT_EQ(run_dear(launch(2, "sleep 1000 & exit 0", {"--grace", "50ms"})).code, 0);
  EXPECT_EQ(run_dear(launch(2, "sleep 1000 & exit 0", {"--no-prefix"})).code, 0);
  lifeline.wait_for_all_to_end();
}

TEST(Launch, WaitsForTheOutputOfAPipelineThatOutlivesItsRank) {
  // Its child writes only when the rank itself is a zombie.
  const CommandResult result = run_dear(launch(
      1, "(while read -r _ _ state _ < /proc/$$/stat && [ $state != Z ]; do :; done; echo late) & exit 0",
      {"--grace", "1000s"}));
  EXPECT_EQ(result.output, "[0] late\n");
}

TEST(Launch, StartsManyRanks) {
  const CommandResult result = run_dear({"launch", "-n", "200", "true"});
  EXPECT_EQ(result.code, 0) << result.error;
}

struct Refusal {
  std::string name;
  std::vector<std::string> arguments;
  std::string reason;

  friend void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
};

class RefusedLaunch : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedLaunch, SaysWhyInOneLine) {
  const CommandResult result = run_dear(GetParam().arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.error, HasSubstr(GetParam().reason));
  EXPECT_THAT(result.error, EndsWith(" (see dear launch --help)\n"));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
}

INSTANTIATE_TEST_SUITE_P(
    Launch, RefusedLaunch,
    ::testing::Values(
        Refusal{"NoRanks", {"launch", "-n", "0", "true"}, "must be from"},
        Refusal{"TooManyRanks", {"launch", "-n", "1025", "true"}, "must be from"},
        Refusal{"RanksAreNoNumber", {"launch", "-n", "two", "true"}, "two"},
        Refusal{"RanksNotGiven", {"launch", "true"}, "--ranks is missing"},
        Refusal{"NoProgram", {"launch", "-n", "2"}, "no program to launch"},
        Refusal{"UnknownOption", {"launch", "-n", "2", "--fast", "true"}, "no option --fast"},
        Refusal{"GraceWithoutUnit", {"launch", "-n", "2", "--grace", "5", "true"}, "5"},
        Refusal{
            "ProgramNotFound", {"launch", "-n", "2", "/no/such/program"}, "cannot run '/no/such/program'"},
        Refusal{"ProgramNotExecutable", {"launch", "-n", "2", "/etc/passwd"}, "Permission denied"}),
    [](const auto& test) { return test.param.name; });

TEST(Launcher, RefusesWhatItCannotStart) {
  EXPECT_THROW(Launcher({.ranks = 0, .command = {"true"}}), ConfigError);
  EXPECT_THROW(Launcher({.ranks = kMostRanks + 1, .command = {"true"}}), ConfigError);
  EXPECT_THROW(Launcher({.ranks = 1, .command = {}}), ConfigError);
}

TEST(Launcher, RunsInsideAnotherProgramWithVariablesOfItsOwn) {
  const Launcher launcher({.who = "dear train",
                           .ranks = 2,
                           .command = {"sh", "-c", "[ $COLOUR = blue ] && exit $RANK"},
                           .environment = {{"COLOUR", "blue"}},
                           .prefix = false});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launcher.run(), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::StartsWith("dear train: rank 1 "));
}

// The launcher is stopped until the rank is gone: it learns of the reason and of the end at once.
TEST(Launcher, LetsARankSayWhyThoughItEndsAtOnce) {
  const std::string resume = "(sleep 0.2; kill -CONT $PPID) > /dev/null 2>&1 &";
  const Launcher launcher(
      {.who = "dear train",
       .ranks = 1,
       .command = {"sh", "-c", "kill -STOP $PPID; echo 'dear train: no data' >&2; " + resume + " exit 1"},
       .prefix = false,
       .ranks_say_why = true});
  EXPECT_EXIT(std::exit(launcher.run()), ::testing::ExitedWithCode(1),
              ::testing::Eq("dear train: no data\n"));
}

}  // namespace
}  // namespace dear::launch::launcher_test
