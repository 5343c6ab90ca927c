#include "tests/fuzz/target.h"
#include "tests/fuzz/targets/speech.h"
#include <atomic>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <thread>

#include "dear/base/admission/door.h"
#include "dear/base/admission/handshake.h"
#include "dear/comm/gloo/meeting/meeting.h"

namespace dear::fuzz {
namespace {

using admission::MeetingConnection;
using admission::MeetingMessage;
using Kind = MeetingMessage::Kind;

constexpr int kSize = 2;

sockaddr_in address_of(int port) {
  return {.sin_family = AF_INET,
          .sin_port = htons(static_cast<std::uint16_t>(port)),
          .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

int port_of(const os::FileDescriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

os::FileDescriptor listening() {
  const sockaddr_in any = address_of(0);
  return admission::listen_on(reinterpret_cast<const sockaddr*>(&any), sizeof any);
}

// Meets as rank `rank` of two; errors of a meeting are fine.
void meet_at(int port, int rank, std::chrono::milliseconds allowance) {
  try {
    const auto got = channels::meet({.rank = rank,
                                     .size = kSize,
                                     .master_address = "127.0.0.1",
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

// A message, waited for as long as the meeting lasts.
std::optional<MeetingMessage> next(MeetingConnection& connection, const std::atomic<bool>& over) {
  MeetingMessage message;
  for (;;) {
    connection.send();
    const MeetingConnection::Received received = connection.receive(message);
    if (received == MeetingConnection::Received::message) return message;
    if (received != MeetingConnection::Received::nothing_yet || over) return std::nullopt;
    connection.wait_ready(Deadline::after(std::chrono::milliseconds(1)));
  }
}

// Guests of the fuzzer's at rank 0, and at the end one that does as it should.
void host(Bytes bytes) {
  static const int kPort = port_of(listening());
  std::atomic<bool> over = false;
  std::thread guests([&] {
    const sockaddr_in address = address_of(kPort);
    for (int more = bytes.byte() % 3; more >= 0 && !over; --more) {
      os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (over) return;
        socket = os::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        std::this_thread::yield();  // until rank 0 listens
      }
      MeetingConnection guest(std::move(socket), admission::kLongestMessage);
      const auto challenge = next(guest, over);
      if (!challenge) continue;
      if (more == 0) {
        Bytes right(std::string_view("\1\2\377", 3));
        prove(right, guest, challenge->text);
        guest.say(Kind::messages, admission::joined({"to rank 0", ""}));
        while (next(guest, over)) guest.say(Kind::settled);
        return;
      }
      if (bytes.byte() % 2 == 0) {
        prove(bytes, guest, challenge->text);
        static_cast<void>(next(guest, over));
      }
      for (int texts = bytes.byte() % 4; texts > 0; --texts) speak(bytes, guest, guest.get());
    }
  });
  meet_at(kPort, 0, std::chrono::milliseconds(500));
  over = true;
  guests.join();
}

// A host of the fuzzer's, which rank 1 visits.
void guest(Bytes bytes) {
  const os::FileDescriptor listener = listening();
  std::atomic<bool> over = false;
  std::thread hosts([&] {
    while (!over) {
      os::FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) {
        pollfd entry{.fd = listener.get(), .events = POLLIN};
        ::poll(&entry, 1, 1);
        continue;
      }
      MeetingConnection host(std::move(socket), admission::kLongestMessage);
      admission::Handshake own{.key = key(), .host_rank = 0, .host_nonce = admission::fresh_nonce()};
      if (bytes.byte() % 4 != 0) {
        host.say(Kind::challenge, own.host_nonce);
        const auto hello = next(host, over);
        if (!hello) continue;
        const auto proof = admission::read_hello(hello->text, own);
        if (proof && bytes.byte() % 4 != 0) host.say(Kind::welcome, own.host_proof());
      }
      host.send();
      for (int texts = bytes.byte() % 4; texts > 0; --texts) speak(bytes, host, host.get());
    }
  });
  meet_at(port_of(listener), 1, std::chrono::milliseconds(5));
  over = true;
  hosts.join();
}

}  // namespace

// A whole meeting over TCP.
void meet(std::string_view bytes) {
  Bytes rest(bytes);
  return rest.byte() % 2 == 0 ? host(rest) : guest(rest);
}

}  // namespace dear::fuzz
