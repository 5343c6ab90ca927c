#include <arpa/inet.h>
#include <csignal>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/launch/held_port.h"
#include "dear/base/launch/testing/launched_command.h"
#include "dear/base/os/file_descriptor.h"

// Launchers of several hosts, which are this one.
namespace dear::launch::several_hosts_test {
namespace {

using testing::CommandResult;
using testing::LaunchedCommand;
using testing::Lifeline;
using testing::lines_of;

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Where the launchers of a test meet.
class Meeting {
 public:
  explicit Meeting(std::vector<std::string> options = {}) : options_(std::move(options)) {}

  // `dear launch -n RANKS --hosts 2 --meet HERE OPTIONS -- sh -c SCRIPT`
  [[nodiscard]] std::vector<std::string> words(int ranks, const std::string& script,
                                               const std::string& hosts = "2") const {
    std::vector<std::string> words{"launch",
                                   "-n",
                                   std::to_string(ranks),
                                   "--hosts",
                                   hosts,
                                   "--meet",
                                   fmt::format("127.0.0.1:{}", held_.port)};
    words.insert(words.end(), options_.begin(), options_.end());
    words.insert(words.end(), {"--", "sh", "-c", script});
    return words;
  }
  // Starts the launcher that leads, and returns when others can come.
  std::unique_ptr<LaunchedCommand> leader(int ranks, const std::string& script) const {
    auto command = std::make_unique<LaunchedCommand>(words(ranks, script));
    for (;;) {
      const os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{.sin_family = AF_INET,
                          .sin_port = htons(static_cast<std::uint16_t>(held_.port)),
                          .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return command;
      std::this_thread::yield();
    }
  }

 private:
  HeldPort held_ = hold_port("127.0.0.1");
  std::vector<std::string> options_;
};

TEST(SeveralHosts, ShareTheRanksOfOneJob) {
  const Meeting meeting;
  const std::string script =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(2, script));
  const CommandResult first = leader->wait(), second = other.wait();
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(first.error + second.error, "");
  EXPECT_EQ(first.output, "[0] 0/3 0/1 0/2 127.0.0.1\n");
  EXPECT_THAT(lines_of(second.output),
              UnorderedElementsAre("[1] 1/3 0/2 1/2 127.0.0.1", "[2] 2/3 1/2 1/2 127.0.0.1"));
}

TEST(SeveralHosts, EndWhereARankOfOneFails) {
  const Meeting meeting;
  const std::string script = "[ $RANK = 1 ] && exit 5; exec sleep 1000";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(2, script));
  const CommandResult first = leader->wait(), second = other.wait();
  EXPECT_EQ(first.code, 5);
  EXPECT_EQ(second.code, 5);
  EXPECT_EQ(first.error, "dear launch: rank 1 exited with code 5; ending the other ranks\n");
  EXPECT_EQ(second.error, "dear launch: the job ended with code 5: the launcher at 127.0.0.1 says why\n");
}

TEST(SeveralHosts, TellTheCauseThatARankGives) {
  const Meeting meeting;
  const std::string script =
      "[ $RANK = 2 ] && { echo \"$RANK no more data\" > $DEAR_CAUSES; exit 3; }; exec sleep 1000";
  const auto leader = meeting.leader(2, script);
  LaunchedCommand other(meeting.words(1, script));
  const CommandResult first = leader->wait();
  EXPECT_EQ(other.wait().code, 3);
  EXPECT_EQ(first.code, 3);
  EXPECT_THAT(first.error,
              ::testing::ContainsRegex("rank 2 failed first, .* s after the start: no more data"));
}

TEST(SeveralHosts, LeaveNothingWhereALauncherIsKilled) {
  for (const bool leads : {true, false}) {
    const Meeting meeting;
    Lifeline lifeline;
    const std::string script = "echo started; exec sleep 1000";
    auto leader = meeting.leader(1, script);
    auto other = std::make_unique<LaunchedCommand>(meeting.words(1, script));
    EXPECT_EQ(leader->read_line(), "[0] started\n");
    EXPECT_EQ(other->read_line(), "[1] started\n");
    (leads ? leader : other)->send(SIGKILL);
    const CommandResult left = (leads ? other : leader)->wait();
    EXPECT_EQ(left.code, 1);
    EXPECT_THAT(left.error, HasSubstr(leads ? "the launcher that leads this job is lost"
                                            : "is lost: its launcher ended"));
    leader.reset();
    other.reset();
    lifeline.wait_for_all_to_end();
  }
}

TEST(SeveralHosts, PassOnSignalsThatAnyOfThemGets) {
  const Meeting meeting;
  const std::string script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.01; done";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(1, script));
  EXPECT_EQ(leader->read_line(), "[0] started\n");
  EXPECT_EQ(other.read_line(), "[1] started\n");
  other.send(SIGTERM);
  EXPECT_EQ(leader->wait().code, 0);
  EXPECT_EQ(other.wait().code, 0);
}

TEST(SeveralHosts, StartAgainTogether) {
  const Meeting meeting({"--restarts", "1"});
  const std::string script =
      "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 5; echo $TORCHELASTIC_RESTART_COUNT";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(1, script));
  const CommandResult first = leader->wait(), second = other.wait();
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(second.code, 0);
  EXPECT_THAT(first.error, HasSubstr("restart 1 of 1, with 2 ranks: rank 1 failed"));
  EXPECT_EQ(second.output, "[1] 1\n");
}

TEST(SeveralHosts, PassOnAllOutputOfAStartBeforeTheNext) {
  const Meeting meeting({"--restarts", "1", "--no-prefix"});
  const std::string script =
      "if [ $RANK = 1 ]; then i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i + 1)); done; "
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 5; fi; exit 0";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(1, script));
  EXPECT_EQ(lines_of(other.wait().output).size(), 6000u);
  EXPECT_EQ(leader->wait().code, 0);
}

TEST(SeveralHosts, EndThoughAProcessHoldsTheOutput) {
  const Meeting meeting({"--grace", "100ms"});
  const std::string script = "[ $RANK = 1 ] && /usr/bin/env -i setsid sleep 8 & exit 0";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(1, script));
  EXPECT_EQ(leader->wait().code, 0);
}

TEST(SeveralHosts, WaitForAHostThatComesBack) {
  const Meeting meeting({"--restarts", "1"});
  const std::string script = "echo started; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000";
  const auto leader = meeting.leader(1, script);
  {
    LaunchedCommand lost(meeting.words(1, script));
    EXPECT_EQ(lost.read_line(), "[1] started\n");
    lost.send(SIGKILL);
  }
  LaunchedCommand other(meeting.words(1, script));
  EXPECT_EQ(other.wait().code, 0);
  const CommandResult first = leader->wait();
  EXPECT_EQ(first.code, 0);
  EXPECT_THAT(first.error, HasSubstr("restart 1 of 1, with 2 ranks: rank 1 failed"));
}

// Of a program that does not follow the roster.
TEST(SeveralHosts, GoOnWithoutAHostWhoseRanksFail) {
  const Meeting meeting({"--elastic", "1:3", "--restarts", "5"});
  const std::string script =
      "[ $GROUP_RANK = 0 ] && { [ $WORLD_SIZE = 1 ] || exec sleep 1000; echo alone; exit 0; }; "
      "[ $RANK = $((TORCHELASTIC_RESTART_COUNT + 1)) ] && exit 5; exec sleep 1000";
  const auto leader = meeting.leader(1, script);
  LaunchedCommand other(meeting.words(2, script));
  const CommandResult first = leader->wait();
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.output, "[0] alone\n");
  EXPECT_THAT(first.error, HasSubstr("is left out: two of its ranks failed at the same step"));
  const CommandResult second = other.wait();
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.error, HasSubstr("this host is left out"));
}

TEST(SeveralHosts, RefuseWhoDoesNotBelongToThem) {
  const Meeting meeting;
  const std::string script = "echo started; [ $RANK = 1 ] || read line";
  const auto leader = meeting.leader(1, script);
  const CommandResult three = testing::run_dear(meeting.words(1, script, "3"));
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.error, HasSubstr("it says --hosts 3, and the host that leads says --hosts 2"));
  LaunchedCommand other(meeting.words(1, script));
  EXPECT_EQ(leader->read_line(), "[0] started\n");
  const CommandResult late = testing::run_dear(meeting.words(1, script));
  EXPECT_EQ(late.code, 2);
  EXPECT_THAT(late.error, HasSubstr("all 2 hosts are there"));
  leader->write_input("\n");
  EXPECT_EQ(leader->wait().code, 0);
  EXPECT_EQ(other.wait().code, 0);
}

TEST(SeveralHosts, SayWhoHasCome) {
  const Meeting meeting({"--wait", "100ms"});
  const CommandResult alone = testing::run_dear(meeting.words(1, "true"));
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.error, HasSubstr("1 of 2 hosts came to 127.0.0.1 port"));
}

TEST(SeveralHosts, BeginWithTheRanksThatElasticSays) {
  const Meeting meeting({"--elastic", "1:3"});
  const auto leader = meeting.leader(1, "true");
  LaunchedCommand other(meeting.words(1, "true"));
  const CommandResult first = leader->wait();
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.error, HasSubstr("--elastic begins with 3 ranks, and 2 hosts start 2"));
  EXPECT_EQ(other.wait().code, 2);
}

class RefusedMeeting : public ::testing::TestWithParam<std::vector<std::string>> {};
TEST_P(RefusedMeeting, SaysWhatToGive) {
  std::vector<std::string> words{"launch", "-n", "1"};
  words.insert(words.end(), GetParam().begin(), GetParam().end() - 1);
  words.insert(words.end(), {"--", "true"});
  const CommandResult result = testing::run_dear(words);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr(GetParam().back()));
}
INSTANTIATE_TEST_SUITE_P(
    SeveralHosts, RefusedMeeting,
    ::testing::Values(std::vector<std::string>{"--hosts", "2", "--hosts and --meet belong together"},
                      std::vector<std::string>{"--meet", "a:1", "--hosts and --meet belong together"},
                      std::vector<std::string>{"--hosts", "2", "--meet", "a", "'a' must be the address"},
                      std::vector<std::string>{"--hosts", "2", "--meet", "a:70000", "a port, 1 to 65535"},
                      std::vector<std::string>{"--hosts", "2", "--meet", "a:1x", "a port, 1 to 65535"},
                      std::vector<std::string>{"--hosts", "2", "--meet", "no.such.host.invalid:1",
                                               "does not know the address"}));

}  // namespace
}  // namespace dear::launch::several_hosts_test
