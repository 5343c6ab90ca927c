#include "dear/base/admission/wires.h"

#include <atomic>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/admission/door.h"
#include "dear/base/os/testing/ranks.h"
#include "dear/base/os/testing/reserved_port.h"

namespace dear::admission::wires_test {
namespace {

using os::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Wires::Options options(int rank, int size,
                       std::chrono::duration<double> patience = std::chrono::seconds(60)) {
  return {.key = "the key of the job", .rank = rank, .size = size, .deadline = Deadline::after(patience)};
}

// Those of `size` ranks that listen.
struct Ranks {
  explicit Ranks(int size, const std::string& address = "127.0.0.1") {
    for (int rank = 0; rank < size; ++rank) {
      wires.push_back(std::make_unique<Wires>(address, rank));
      places.push_back(wires.back()->place());
    }
  }
  std::vector<Wires::Wire> connect(const Wires::Options& options) {
    return wires[static_cast<std::size_t>(options.rank)]->connect(options, places);
  }
  std::vector<std::unique_ptr<Wires>> wires;
  std::vector<Wires::Place> places;
};

// Each says its rank to every other, and hears the right one.
void greet(const std::vector<Wires::Wire>& wires, int rank) {
  for (int peer = 0; peer < static_cast<int>(wires.size()); ++peer) {
    const int socket = wires[static_cast<std::size_t>(peer)].socket.get();
    ASSERT_EQ(socket >= 0, peer != rank);
    if (peer == rank) continue;
    ASSERT_EQ(::send(socket, &rank, sizeof rank, MSG_NOSIGNAL), ssize_t{sizeof rank});
  }
  for (int peer = 0; peer < static_cast<int>(wires.size()); ++peer) {
    if (peer == rank) continue;
    pollfd entry = {.fd = wires[static_cast<std::size_t>(peer)].socket.get(), .events = POLLIN};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    int said = -1;
    ASSERT_EQ(::recv(entry.fd, &said, sizeof said, 0), ssize_t{sizeof said});
    EXPECT_EQ(said, peer);
  }
}

os::FileDescriptor stranger_at(int port) {
  os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(static_cast<std::uint16_t>(port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return socket;
}

TEST(Wires, ConnectAllRanks) {
  for (const char* const address : {"127.0.0.1", "@"}) {
    for (const int size : {1, 2, 3, 8}) {
      Ranks ranks(size, address);
      const auto reports =
          run_on_threads(size, [&](int rank) { greet(ranks.connect(options(rank, size)), rank); });
      EXPECT_THAT(reports, Each("ok"));
    }
  }
}

TEST(Wires, ConnectOnlyThoseThatAreWanted) {
  Ranks ranks(4, "@");
  const auto reports = run_on_threads(4, [&](int rank) {
    Wires::Options mine = options(rank, 4);
    mine.peers = rank == 1 ? std::vector<int>{0, 2, 3} : std::vector<int>{1};
    Wires none;
    Wires& wires = rank == 1 || rank == 0 ? *ranks.wires[static_cast<std::size_t>(rank)] : none;
    const auto connected = wires.connect(mine, ranks.places);
    for (int peer = 0; peer < 4; ++peer)
      EXPECT_EQ(connected[static_cast<std::size_t>(peer)].socket.is_open(),
                peer != rank && (peer == 1 || rank == 1));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Wires, AStrangerTakesNobodysPlace) {
  Ranks ranks(3);
  std::vector<os::FileDescriptor> strangers;
  for (const Wires::Place& place : ranks.places) {
    for (int i = 0; i < 100; ++i) strangers.push_back(stranger_at(place.port));  // half-open
    for (const std::string& text :
         {std::string(8, '\0'), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x')}) {
      strangers.push_back(stranger_at(place.port));
      ::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
  // A rank of a job with another key, and one that claims a rank that does not connect to this one.
  std::atomic<int> refused = 0;
  const auto knock = [&](const std::string& key, int host, int rank, int size) {
    MeetingConnection connection(stranger_at(ranks.places[static_cast<std::size_t>(host)].port),
                                 kLongestMessage);
    Visit visit(key, host, rank, size);
    MeetingMessage message;
    for (;;) {
      connection.send();
      switch (connection.receive(message)) {
        case MeetingConnection::Received::nothing_yet:
          connection.wait_ready(Deadline::after(std::chrono::seconds(60)));
          break;
        case MeetingConnection::Received::message:
          EXPECT_NE(visit.hear(message, connection), Visit::State::welcome);
          break;
        default:
          ++refused;
          return;
      }
    }
  };
  std::vector<std::thread> knocking;
  for (const int rank : {0, 1, 2, 3, -1}) {
    knocking.emplace_back([&, rank] { knock("another key", 0, rank, 3); });
    knocking.emplace_back([&, rank] { knock("another key", 1, rank, 3); });
  }
  knocking.emplace_back([&] { knock("the key of the job", 1, 0, 3); });
  knocking.emplace_back([&] { knock("the key of the job", 0, 7, 3); });
  knocking.emplace_back([&] { knock("the key of the job", 0, 1, 4); });
  const auto reports = run_on_threads(3, [&](int rank) { greet(ranks.connect(options(rank, 3)), rank); });
  for (std::thread& thread : knocking) thread.join();
  EXPECT_THAT(reports, Each("ok"));
  EXPECT_EQ(refused, 13);
}

TEST(Wires, ARankThatIsStoppedIsNamedAtTheDeadlineByAll) {
  Ranks ranks(4);  // rank 0 listens, and says nothing
  const auto reports = run_on_threads(
      3, [&](int thread) { ranks.connect(options(thread + 1, 4, std::chrono::milliseconds(300))); });
  EXPECT_THAT(reports,
              Each(AllOf(StartsWith("TimeoutError: rank "), HasSubstr("no connection with rank 0 in"))));
}

TEST(Wires, ARankThatEndedIsNamed) {
  Ranks ranks(2);
  ranks.wires[0].reset();
  EXPECT_THAT(os::testing::report_of([&] { ranks.connect(options(1, 2)); }),
              AllOf(StartsWith("TransportError: rank 1 cannot connect to rank 0"), HasSubstr("refused")));
}

TEST(Wires, ARankThatEndedBeforeItCameIsNamedByWhoWaitsForIt) {
  for (const char* const address : {"127.0.0.1", "@"}) {
    Ranks ranks(3, address);
    ranks.wires[2].reset();
    const auto reports = run_on_threads(2, [&](int rank) {
      Wires::Options mine = options(rank, 3);
      if (rank == 1) mine.peers = {0};
      ranks.connect(mine);
    });
    EXPECT_THAT(reports[0], "TransportError: rank 0 waits for rank 2, which ended while the ranks connected");
    EXPECT_EQ(reports[1], "ok");
  }
}

// Rank 1 comes after rank 0 has asked whether it lives.
TEST(Wires, ARankThatIsWaitedForMayBeLate) {
  const os::testing::ReservedPort port;
  ASSERT_EQ(::listen(port.socket(), 1), 0);
  Ranks ranks(2);
  ranks.places[1].port = port.number();
  const auto reports = run_on_threads(2, [&](int rank) {
    os::FileDescriptor question;
    if (rank == 1) question = os::FileDescriptor(::accept(port.socket(), nullptr, nullptr));
    EXPECT_EQ(question.is_open(), rank == 1);
    greet(ranks.connect(options(rank, 2)), rank);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Wires, AnInterfaceHasAnAddress) {
  EXPECT_EQ(address_of_interface("lo", 0), "127.0.0.1");
  EXPECT_THAT(
      os::testing::report_of([] { address_of_interface("nosuch0", 3); }),
      AllOf(StartsWith("ConfigError: rank 3"), HasSubstr("nosuch0"), HasSubstr("GLOO_SOCKET_IFNAME")));
}

}  // namespace
}  // namespace dear::admission::wires_test
