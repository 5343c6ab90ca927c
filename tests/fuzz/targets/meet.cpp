#include "tests/fuzz/target.h"
#include "tests/fuzz/targets/speech.h"
#include "tests/fuzz/targets/turns.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "dear/base/admission/door.h"
#include "dear/base/admission/handshake.h"
#include "dear/comm/gloo/meeting/meeting.h"

namespace dear::fuzz {
namespace {

using admission::MeetingConnection;
using admission::MeetingMessage;
using Kind = MeetingMessage::Kind;

constexpr int kSize = 2;

// Meetings one after the other are at one port of 250 addresses of this host. The kernel looks at all
// connections that have ended lately at an address before it lets another listen there.
std::string next_address() {
  static int last = 0;
  last = last % 250 + 1;
  return "127.0.0." + std::to_string(last);
}

sockaddr_in place(const std::string& address, int port) {
  sockaddr_in place{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  ::inet_pton(AF_INET, address.c_str(), &place.sin_addr);
  return place;
}

os::FileDescriptor listening(const std::string& address) {
  const sockaddr_in any_port = place(address, 0);
  return admission::listen_on(reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port);
}

int port_of(const os::FileDescriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// Meets as rank `rank` of two, and gives the others a turn whenever the meeting waits; errors of a meeting
// are fine.
void meet_at(const std::string& address, int port, int rank, std::chrono::milliseconds allowance,
             Turns others) {
  const WhileWaiting waits(others);
  try {
    const auto got = channels::meet({.rank = rank,
                                     .size = kSize,
                                     .master_address = address,
                                     .master_port = port,
                                     .job = kJob,
                                     .secret = kSecret,
                                     .deadline = Deadline::after(allowance)},
                                    {"to rank 0", "to rank 1"});
    if (got.size() != kSize) throw Broken("a meeting ends with messages of other ranks than there are");
  } catch (const TransportError&) {
  } catch (const TimeoutError&) {
  } catch (const MismatchError&) {
  }
}

// Whether there is an answer: a message, or nothing where the connection has ended.
bool hear(MeetingConnection& connection, std::optional<MeetingMessage>& answer) {
  connection.send();
  answer.emplace();
  const MeetingConnection::Received received = connection.receive(*answer);
  if (received == MeetingConnection::Received::message) return true;
  answer.reset();
  return received != MeetingConnection::Received::nothing_yet;
}

// Guests of the fuzzer's at rank 0, and at the end one that does as it should.
Turns guests(Bytes bytes, const sockaddr_in address) {
  std::optional<MeetingMessage> said;
  for (int more = bytes.byte() % 3; more >= 0; --more) {
    os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) co_return;
    MeetingConnection guest(std::move(socket), admission::kLongestMessage);
    while (!hear(guest, said)) co_await std::suspend_always{};
    if (!said) continue;
    if (more == 0) {
      Bytes right(std::string_view("\1\2\377", 3));
      prove(right, guest, said->text);
      guest.say(Kind::messages, admission::joined({"to rank 0", ""}));
      do {
        while (!hear(guest, said)) co_await std::suspend_always{};
        guest.say(Kind::settled);
      } while (said);
      co_return;
    }
    if (bytes.byte() % 2 == 0) {
      prove(bytes, guest, said->text);
      while (!hear(guest, said)) co_await std::suspend_always{};
    }
    for (int texts = bytes.byte() % 4; texts > 0; --texts) {
      speak(bytes, guest, guest.get());
      if (bytes.byte() % 2 == 0) co_await std::suspend_always{};
    }
  }
}

void host(Bytes bytes) {
  static const int kPort = port_of(listening("127.0.0.1"));
  const std::string address = next_address();
  meet_at(address, kPort, 0, std::chrono::milliseconds(500), guests(bytes, place(address, kPort)));
}

// A host of the fuzzer's, which rank 1 visits.
Turns hosts(Bytes bytes, const os::FileDescriptor& listener) {
  std::optional<MeetingMessage> said;
  for (;;) {
    os::FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      co_await std::suspend_always{};
      continue;
    }
    MeetingConnection host(std::move(socket), admission::kLongestMessage);
    admission::Handshake own{.key = key(), .host_rank = 0, .host_nonce = admission::fresh_nonce()};
    if (bytes.byte() % 4 != 0) {
      host.say(Kind::challenge, own.host_nonce);
      while (!hear(host, said)) co_await std::suspend_always{};
      if (!said) continue;
      const auto proof = admission::read_hello(said->text, own);
      if (proof && bytes.byte() % 4 != 0) host.say(Kind::welcome, own.host_proof());
    }
    host.send();
    for (int texts = bytes.byte() % 4; texts > 0; --texts) {
      speak(bytes, host, host.get());
      if (bytes.byte() % 2 == 0) co_await std::suspend_always{};
    }
  }
}

void guest(Bytes bytes) {
  static const std::string kAddress = "127.0.0.1";
  static const os::FileDescriptor kListener = listening(kAddress);
  static const int kPort = port_of(kListener);
  while (os::FileDescriptor(::accept4(kListener.get(), nullptr, nullptr, SOCK_CLOEXEC)).is_open()) {
  }  // who came for another input
  meet_at(kAddress, kPort, 1, std::chrono::milliseconds(50), hosts(bytes, kListener));
}

}  // namespace

// A whole meeting over TCP, in one thread.
void meet(std::string_view bytes) {
  Bytes rest(bytes);
  return rest.byte() % 2 == 0 ? host(rest) : guest(rest);
}

}  // namespace dear::fuzz
