#include "dear/comm/gloo/meeting/meeting.h"

#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/gloo/meeting/message.h"

namespace dear::channels::meeting_test {
namespace {

using os::testing::report_of;
using os::testing::ReservedPort;
using os::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = MeetingMessage::Kind;

MeetingOptions at(const ReservedPort& port, int rank, int size, double seconds = 60) {
  return {.rank = rank,
          .size = size,
          .master_address = "127.0.0.1",
          .master_port = port.number(),
          .deadline = Deadline::after(std::chrono::duration<double>(seconds))};
}

std::vector<std::string> blank(int size) { return std::vector<std::string>(static_cast<std::size_t>(size)); }

std::string message(int from, int to) {
  return fmt::format("from {} to {} {}", from, to, std::string(static_cast<std::size_t>(from * 9'000), 'x'));
}

void meet_and_compare(const MeetingOptions& options) {
  std::vector<std::string> messages;
  for (int peer = 0; peer < options.size; ++peer) messages.push_back(message(options.rank, peer));
  const std::vector<std::string> got = meet(options, messages);
  ASSERT_EQ(got.size(), messages.size());
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    EXPECT_EQ(got[static_cast<std::size_t>(peer)], message(peer, options.rank));
  }
}

os::FileDescriptor connected_to(const ReservedPort& port) {
  os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<std::uint16_t>(port.number())),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::this_thread::yield();  // until rank 0 listens
    socket = os::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  return socket;
}

void wait_until_closed(const os::FileDescriptor& socket) {
  char byte = 0;
  while (::recv(socket.get(), &byte, 1, 0) > 0) {
  }
}

TEST(Meeting, GivesEveryRankTheMessagesForIt) {
  for (const int size : {1, 2, 3, 7}) {
    const ReservedPort port;
    EXPECT_THAT(os::testing::run_on_threads(size, [&](int rank) { meet_and_compare(at(port, rank, size)); }),
                Each("ok"));
  }
}

TEST(Meeting, OneCanFollowAnotherAtThePort) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(3, [&](int rank) {
    for (int i = 0; i < 30; ++i) meet_and_compare(at(port, rank, 3));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, ARankThatDoesNotComeIsNamedByAll) {
  for (const int impatient : {0, 1}) {
    const ReservedPort port;
    const auto reports = os::testing::run_on_threads(
        2, [&](int rank) { meet(at(port, rank, 4, rank == impatient ? 0.3 : 60), blank(4)); });
    EXPECT_THAT(reports, Each(AllOf(StartsWith("TimeoutError"), HasSubstr("ranks 2, 3 did not come"),
                                    HasSubstr("MASTER_PORT"))));
  }
}

TEST(Meeting, RankZeroThatDoesNotComeIsNamed) {
  const ReservedPort port;
  EXPECT_THAT(os::testing::report_of([&] { meet(at(port, 1, 2, 0.1), blank(2)); }),
              AllOf(StartsWith("TimeoutError: rank 1 did not find"), HasSubstr("refused")));
}

TEST(Meeting, RanksThatDisagreeAboutTheirNumberAreNamed) {
  const ReservedPort port;
  const auto reports =
      os::testing::run_on_threads(2, [&](int rank) { meet(at(port, rank, 2 + rank), blank(2 + rank)); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError"), HasSubstr("rank 1 was told of 3"),
                                  HasSubstr("WORLD_SIZE"))));
}

TEST(Meeting, TwoWithOneRankAreNamed) {
  const ReservedPort port;
  const auto reports =
      os::testing::run_on_threads(3, [&](int rank) { meet(at(port, rank == 0 ? 0 : 2, 3), blank(3)); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError"), HasSubstr("two processes have rank 2"))));
}

TEST(Meeting, ARankOfAnotherJobIsTurnedAway) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    MeetingOptions options = at(port, rank, 2);
    if (rank == 1) {
      options.job = "other";
      EXPECT_THAT(os::testing::report_of([&] { meet(options, blank(2)); }),
                  AllOf(StartsWith("MismatchError: rank 1"), HasSubstr("another job (other)")));
    }
    options.job = "this";
    meet_and_compare(options);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, StrangersDoNotDisturbIt) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 0) return meet_and_compare(at(port, 0, 2));
    const os::FileDescriptor silent = connected_to(port);
    const os::FileDescriptor browser = connected_to(port);
    ::send(browser.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    wait_until_closed(browser);
    MeetingConnection babbler(connected_to(port), kLongestMessage);
    babbler.say(Kind::hello, "no three texts");
    babbler.send();
    meet_and_compare(at(port, 1, 2));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, ARankThatEndsMeanwhileIsNamed) {
  const ReservedPort port;
  const auto come = [&](const char* rank) {
    auto guest = std::make_unique<MeetingConnection>(connected_to(port), kLongestMessage);
    guest->say(Kind::hello, joined({rank, "4", ""}));
    guest->send();
    return guest;
  };
  const auto hear = [](MeetingConnection& guest) {
    MeetingMessage message;
    while (guest.receive(message) == MeetingConnection::Received::nothing_yet) {
      guest.wait_ready(Deadline::after(std::chrono::seconds(60)));
    }
    return message;
  };
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 0) {
      meet(at(port, 0, 4), blank(4));
      return;
    }
    const auto staying = come("1");
    auto dying = come("2");
    EXPECT_EQ(hear(*staying).kind, Kind::welcome);
    EXPECT_EQ(hear(*dying).kind, Kind::welcome);
    dying.reset();
    const MeetingMessage last = hear(*staying);
    EXPECT_EQ(last.kind, Kind::lost);
    EXPECT_THAT(last.text, HasSubstr("rank 2 ended"));
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TransportError: rank 0"), HasSubstr("rank 2 ended")));
  EXPECT_THAT(reports[1], "ok");
}

TEST(Meeting, APortThatIsTakenIsNamed) {
  const ReservedPort port;
  ASSERT_EQ(::listen(port.socket(), 1), 0);
  EXPECT_THAT(os::testing::report_of([&] { meet(at(port, 0, 2), blank(2)); }),
              AllOf(StartsWith("TransportError: rank 0 "), HasSubstr("choose another MASTER_PORT"),
                    HasSubstr("in use")));
}

TEST(Meeting, SomethingElseAtThePortIsNamed) {
  const ReservedPort port;
  ASSERT_EQ(::listen(port.socket(), 1), 0);
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 1) {
      meet(at(port, 1, 2), blank(2));
      return;
    }
    const os::FileDescriptor guest(::accept(port.socket(), nullptr, nullptr));
    ::send(guest.get(), "SSH-2.0\r\n", 9, MSG_NOSIGNAL);
    wait_until_closed(guest);
  });
  EXPECT_THAT(reports[1], AllOf(StartsWith("TransportError: rank 1 "), HasSubstr("MASTER_PORT")));
}

TEST(Meeting, SomethingThatSaysNothingIsATimeout) {
  const ReservedPort port;
  ASSERT_EQ(::listen(port.socket(), 1), 0);
  EXPECT_THAT(os::testing::report_of([&] { meet(at(port, 1, 2, 0.1), blank(2)); }),
              AllOf(StartsWith("TimeoutError: rank 1 did not find"), HasSubstr("says nothing")));
}

TEST(Meeting, BadPlacesAreRefused) {
  const auto report = [](const MeetingOptions& options) {
    return os::testing::report_of([&] { meet(options, blank(options.size)); });
  };
  const Deadline soon = Deadline::after(std::chrono::seconds(60));
  EXPECT_THAT(report({.size = 2, .master_port = 4711, .deadline = soon}),
              AllOf(StartsWith("ConfigError"), HasSubstr("MASTER_ADDR")));
  for (const int bad : {0, -1, 70'000}) {
    EXPECT_THAT(report({.size = 2, .master_address = "127.0.0.1", .master_port = bad, .deadline = soon}),
                AllOf(StartsWith("ConfigError"), HasSubstr("MASTER_PORT")));
  }
  EXPECT_THAT(
      report({.rank = 2, .size = 2, .master_address = "127.0.0.1", .master_port = 4711, .deadline = soon}),
      StartsWith("ConfigError: there is no rank 2"));
  const MeetingOptions nowhere{
      .rank = 1, .size = 2, .master_address = "no.such.host.invalid", .master_port = 4711, .deadline = soon};
  EXPECT_THAT(report(nowhere), AllOf(ContainsRegex("^TransportError: rank 1 .*no.such.host")));
  EXPECT_THAT(os::testing::report_of([&] { own_address(nowhere); }), StartsWith("TransportError: rank 1 "));
}

TEST(Meeting, TheOwnAddressLeadsToTheMaster) {
  const ReservedPort port;
  EXPECT_EQ(own_address(at(port, 1, 2)), "127.0.0.1");
}

TEST(MeetingMessages, TextsOfTextsArePartedAgain) {
  const std::vector<std::string> texts{"", "one", std::string("\0two", 4), ""};
  EXPECT_EQ(parted(joined(texts)), texts);
  EXPECT_EQ(parted(""), std::vector<std::string>());
  EXPECT_EQ(parted("abc"), std::nullopt);
  EXPECT_EQ(parted(joined(texts).substr(0, 9)), std::nullopt);
}

}  // namespace
}  // namespace dear::channels::meeting_test
