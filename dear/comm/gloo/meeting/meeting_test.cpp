#include "dear/comm/gloo/meeting/meeting.h"

#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/admission/door.h"
#include "dear/base/admission/message.h"
#include "dear/base/os/testing/ranks.h"
#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/gloo/meeting/host.h"

namespace dear::channels::meeting_test {
namespace {

using admission::Door;
using admission::fresh_nonce;
using admission::Handshake;
using admission::hello_of;
using admission::joined;
using admission::kLongestMessage;
using admission::MeetingConnection;
using admission::MeetingMessage;
using admission::parted;
using admission::Visit;
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

MeetingOptions of_job(const ReservedPort& port, int rank, int size) {
  MeetingOptions options = at(port, rank, size);
  options.job = "this";
  options.secret = "a secret of this job";
  return options;
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

os::FileDescriptor connected_to(int port) {
  os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<std::uint16_t>(port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::this_thread::yield();  // until rank 0 listens
    socket = os::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  return socket;
}

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

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
      os::testing::run_on_threads(2, [&](int rank) { meet(of_job(port, rank, 2 + rank), blank(2 + rank)); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError"), HasSubstr("rank 1 was told of 3"),
                                  HasSubstr("WORLD_SIZE"))));
}

TEST(Meeting, TwoWithOneRankAreNamed) {
  const ReservedPort port;
  const auto reports =
      os::testing::run_on_threads(3, [&](int rank) { meet(of_job(port, rank == 0 ? 0 : 2, 3), blank(3)); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError"), HasSubstr("two processes have rank 2"))));
}

TEST(Meeting, ARankOfAnotherJobIsTurnedAway) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 1) {
      for (const bool other_job : {true, false}) {
        MeetingOptions other = of_job(port, 1, 2);
        (other_job ? other.job : other.secret) = "of another job";
        other.deadline = Deadline::after(std::chrono::milliseconds(200));
        EXPECT_THAT(
            os::testing::report_of([&] { meet(other, blank(2)); }),
            AllOf(StartsWith("TimeoutError: rank 1"), HasSubstr("of another job, restart or rendezvous")));
      }
    }
    meet_and_compare(of_job(port, rank, 2));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, SaysHowManyCouldNotProve) {
  const ReservedPort port;
  MeetingOptions other = of_job(port, 1, 2);
  other.secret = "of another job";
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    MeetingOptions options = rank == 0 ? of_job(port, 0, 2) : other;
    options.deadline = Deadline::after(std::chrono::milliseconds(500));
    meet(options, blank(2));
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError: rank 0: of 2 ranks, rank 1 did not come"),
                                HasSubstr("could not prove to be of this job")));
}

// Hears one message.
MeetingMessage hear(MeetingConnection& connection) {
  MeetingMessage message;
  while (connection.receive(message) == MeetingConnection::Received::nothing_yet) {
    connection.send();
    connection.wait_ready(Deadline::after(std::chrono::seconds(60)));
  }
  return message;
}

// Comes as a rank does, until it is welcome.
std::unique_ptr<MeetingConnection> come(const MeetingOptions& options) {
  auto guest = std::make_unique<MeetingConnection>(connected_to(options.master_port), kLongestMessage);
  Visit visit(meeting_key(options), 0, options.rank, options.size);
  while (visit.hear(hear(*guest), *guest) != Visit::State::welcome) {
  }
  return guest;
}

// Says it in answer to the challenge, and waits until it is turned away.
void say_and_be_turned_away(const ReservedPort& port, Kind kind,
                            const std::function<std::string(Handshake)>& text) {
  MeetingConnection stranger(connected_to(port.number()), kLongestMessage);
  const MeetingMessage challenge = hear(stranger);
  ASSERT_EQ(challenge.kind, Kind::challenge);
  stranger.say(kind, text({.host_nonce = challenge.text, .guest_nonce = fresh_nonce()}));
  stranger.send();
  MeetingMessage answer;
  for (;;) {
    switch (stranger.receive(answer)) {
      case MeetingConnection::Received::nothing_yet:
        stranger.wait_ready(Deadline::after(std::chrono::seconds(60)));
        continue;
      case MeetingConnection::Received::message:
        ASSERT_EQ(answer.kind, Kind::refused);
        continue;
      default:
        return;
    }
  }
}

// What a stranger may say who knows all of the protocol, but not the secret.
void disturb(const ReservedPort& port) {
  const os::FileDescriptor browser = connected_to(port.number());
  ::send(browser.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
  wait_until_closed(browser);
  const os::FileDescriptor sequence_number = connected_to(port.number());
  ::send(sequence_number.get(), "\0\0\0\0\0\0\0", 8, MSG_NOSIGNAL);
  wait_until_closed(sequence_number);
  say_and_be_turned_away(port, Kind::hello, [](const Handshake&) { return ""; });
  say_and_be_turned_away(port, Kind::hello, [](const Handshake&) { return std::string(1000, 'x'); });
  say_and_be_turned_away(port, Kind::hello, [](const Handshake&) { return joined({"1", "2", ""}); });
  for (const Kind kind : {Kind::challenge, Kind::welcome, Kind::refused, Kind::messages, Kind::ask,
                          Kind::timeout, Kind::mismatch, Kind::lost}) {
    say_and_be_turned_away(port, kind, [](const Handshake&) { return joined({"", "messages of rank 1"}); });
  }
  MeetingOptions other = of_job(port, 1, 2);
  other.secret = "another secret";
  const std::string wrong_key = meeting_key(other);
  for (const int rank : {1, 0, -5, 2, 1 << 30}) {
    for (const int size : {2, 3, 0}) {
      say_and_be_turned_away(port, Kind::hello, [&](Handshake handshake) {
        handshake.key = wrong_key;
        handshake.guest_rank = rank;
        handshake.size = size;
        return hello_of(handshake);
      });
    }
  }
}

TEST(Meeting, StrangersDoNotDisturbIt) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 0) return meet_and_compare(of_job(port, 0, 2));
    const os::FileDescriptor silent = connected_to(port.number());
    disturb(port);
    std::vector<os::FileDescriptor> half_open;
    for (int i = 0; i < 300; ++i) half_open.push_back(connected_to(port.number()));
    meet_and_compare(of_job(port, 1, 2));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, WhatWasHeardOnceIsOfNoUse) {
  const ReservedPort port;
  const MeetingOptions options = of_job(port, 1, 3);
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 0) {
      MeetingOptions host = of_job(port, 0, 3);
      host.deadline = Deadline::after(std::chrono::milliseconds(300));
      meet(host, blank(3));
      return;
    }
    // A hello that is right, of another connection.
    MeetingConnection first(connected_to(port.number()), kLongestMessage);
    const std::string key = meeting_key(options);
    const std::string heard = hello_of({.key = key,
                                        .host_nonce = hear(first).text,
                                        .guest_rank = 1,
                                        .size = 3,
                                        .guest_nonce = fresh_nonce()});
    say_and_be_turned_away(port, Kind::hello, [&](const Handshake&) { return heard; });
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError"), HasSubstr("ranks 1, 2 did not come")));
  EXPECT_EQ(reports[1], "ok");
}

// Nobody can prove to be of a job that has no name and no secret, so what one says counts for that one alone.
TEST(Meeting, AWrongWorldHurtsItselfAloneWhereThereIsNothingToProve) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 1) {
      EXPECT_THAT(os::testing::report_of([&] { meet(at(port, 1, 3), blank(3)); }),
                  AllOf(StartsWith("MismatchError"), HasSubstr("rank 1 was told of 3 ranks")));
      EXPECT_THAT(os::testing::report_of([&] {
                    const auto guest =
                        come({.rank = -5, .size = 2, .master_port = port.number(), .deadline = soon()});
                    throw_told(hear(*guest).kind, -5, "");
                  }),
                  StartsWith("MismatchError"));
    }
    meet_and_compare(at(port, rank, 2));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, OnlyTheAddressOfTheMasterIsOpen) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 1) {
      static_cast<void>(connected_to(port.number()));  // rank 0 listens
      const os::FileDescriptor elsewhere(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address{.sin_family = AF_INET,
                                .sin_port = htons(static_cast<std::uint16_t>(port.number())),
                                .sin_addr = {htonl(INADDR_LOOPBACK + 1)}};
      EXPECT_NE(::connect(elsewhere.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    }
    meet_and_compare(at(port, rank, 2));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, APlaceIsHeldByOneProcessOfThoseThatNothingTellsApart) {
  const ReservedPort port;
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
  const auto reports = os::testing::run_in_processes(2, [&](int process) {
    char byte = 0;
    if (process == 0) {
      const auto held = hold_place(at(port, 0, 2));
      EXPECT_EQ(hold_place(at(port, 0, 2)), held);  // groups of one process share it
      EXPECT_EQ(::write(ready[1], &byte, 1), 1);
      EXPECT_EQ(::read(done[0], &byte, 1), 1);
      return;
    }
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_NE(hold_place(of_job(port, 0, 2)), nullptr);  // another job
    EXPECT_THAT(report_of([&] { hold_place(at(port, 0, 2, 0.1)); }),
                AllOf(StartsWith("MismatchError: rank 0 of another job"), HasSubstr("MASTER_PORT")));
    EXPECT_EQ(::write(done[1], &byte, 1), 1);
    EXPECT_NE(hold_place(at(port, 0, 2)), nullptr);  // once that process has ended
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, ARankThatEndsMeanwhileIsNamed) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    if (rank == 0) {
      meet(at(port, 0, 4), blank(4));
      return;
    }
    const auto staying = come(at(port, 1, 4));
    auto dying = come(at(port, 2, 4));
    dying.reset();
    const MeetingMessage last = hear(*staying);
    EXPECT_EQ(last.kind, Kind::lost);
    EXPECT_THAT(last.text, HasSubstr("rank 2 ended"));
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TransportError: rank 0"), HasSubstr("rank 2 ended")));
  EXPECT_THAT(reports[1], "ok");
}

// As a rank whose connections to others do not stand yet.
void connect_until_told(Meeting& meeting) {
  for (const Deadline end = soon(); !end.expired();) {
    meeting.check();
    std::vector<pollfd> entries;
    meeting.add_to(entries);
    admission::poll_until(entries, end);
  }
}

TEST(Meeting, ARankThatEndsWhileTheRanksConnectIsNamedByAll) {
  for (const int dying : {1, 2, 3}) {
    const ReservedPort port;
    const auto reports = run_on_threads(4, [&](int rank) {
      const auto meeting = open_meeting(at(port, rank, 4), blank(4));
      if (rank == dying) return;
      if (rank == 1) meeting->settle();
      if (rank != 1) connect_until_told(*meeting);
    });
    const std::string named = fmt::format("rank {} ended while the ranks were connecting", dying);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& report = reports[static_cast<std::size_t>(rank)];
      if (rank == dying || rank == 1) {
        EXPECT_EQ(report, "ok");
      } else {
        EXPECT_THAT(report, AllOf(StartsWith("TransportError"), HasSubstr(named)));
      }
    }
  }
}

TEST(Meeting, RankZeroThatEndsWhileTheRanksConnectIsNamedByAll) {
  const ReservedPort port;
  const auto reports = run_on_threads(3, [&](int rank) {
    const auto meeting = open_meeting(at(port, rank, 3), blank(3));
    if (rank != 0) connect_until_told(*meeting);
  });
  EXPECT_EQ(reports[0], "ok");
  for (const int rank : {1, 2})
    EXPECT_THAT(
        reports[static_cast<std::size_t>(rank)],
        AllOf(StartsWith("TransportError"), HasSubstr("lost rank 0 while the ranks were connecting")));
}

TEST(Meeting, AnErrorOfOneRankIsToldToAll) {
  for (const int failing : {0, 1}) {
    const ReservedPort port;
    const auto reports = run_on_threads(3, [&](int rank) {
      const auto meeting = open_meeting(at(port, rank, 3), blank(3));
      if (rank != failing) return connect_until_told(*meeting);
      try {
        throw TimeoutError(fmt::format("rank {} got no connection with rank 2", rank));
      } catch (const Error& error) {
        meeting->fail(error);
      }
    });
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TimeoutError: rank "),
                           HasSubstr(fmt::format("rank {} got no connection with rank 2", failing)))));
  }
}

TEST(Meeting, RankZeroWaitsUntilAllHaveTheirConnections) {
  const ReservedPort port;
  const auto reports = run_on_threads(3, [&](int rank) {
    const auto meeting = open_meeting(at(port, rank, 3, rank == 0 ? 0.5 : 60), blank(3));
    if (rank == 1) connect_until_told(*meeting);
    meeting->settle();
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError: rank 0: rank 1 got no connection")));
  EXPECT_THAT(reports[1], AllOf(StartsWith("TimeoutError: rank 1 got no connection")));
  EXPECT_EQ(reports[2], "ok");
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
  MeetingOptions nowhere{.rank = 1,
                         .size = 2,
                         .master_address = "no.such.host.invalid",
                         .master_port = 4711,
                         .deadline = Deadline::after(std::chrono::milliseconds(600))};
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(report(nowhere), AllOf(ContainsRegex("^TransportError: rank 1 .*no.such.host")));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, StartsWith("dear: rank 1 asks again for the host no.such.host.invalid of rank 0: "));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);  // once, however often it asks
  nowhere.deadline = Deadline::after(std::chrono::milliseconds(0));
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
