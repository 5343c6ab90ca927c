#include "tests/fuzz/target.h"
#include "tests/fuzz/targets/speech.h"
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <vector>

#include "dear/base/admission/door.h"
#include "dear/base/admission/handshake.h"
#include "dear/base/admission/message.h"

namespace dear::fuzz {
namespace {

using admission::Door;
using admission::Handshake;
using admission::MeetingConnection;
using admission::MeetingMessage;
using admission::Visit;
using Kind = MeetingMessage::Kind;

constexpr int kSize = 3;

// A socket of the kernel's alone that listens, and its address.
struct Place {
  sockaddr_un address{.sun_family = AF_UNIX};
  socklen_t length = 0;
  os::FileDescriptor listener{};
};
Place place() {
  Place place;
  place.length = sizeof(sa_family_t);  // the kernel chooses a name
  place.listener = admission::listen_on(reinterpret_cast<const sockaddr*>(&place.address), place.length);
  place.length = sizeof place.address;
  ::getsockname(place.listener.get(), reinterpret_cast<sockaddr*>(&place.address), &place.length);
  return place;
}

os::FileDescriptor connected_to(const Place& place) {
  os::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place.address), place.length);
  return socket;
}

// Guests of the fuzzer's at a door.
void knock(Bytes bytes) {
  Place at = place();
  const std::size_t longest = kSize * (admission::kLongestMessage + 4);
  Door door(std::move(at.listener), key(), 0, kSize, longest);
  std::vector<Door::Entered> entered;
  const auto admit = [&] {
    for (Door::Entered& one : door.admit()) {
      one.connection.say(Kind::welcome, one.welcome);
      one.connection.send();
      entered.push_back(std::move(one));
    }
  };
  bool proved = false;
  for (int guests = 1 + bytes.byte() % 3; guests > 0; --guests) {
    MeetingConnection guest(connected_to(at), admission::kLongestMessage);
    admit();
    if (bytes.byte() % 2 == 0) {
      MeetingMessage challenge;
      if (guest.receive(challenge) != MeetingConnection::Received::message ||
          challenge.kind != Kind::challenge)
        throw Broken("a door says no challenge");
      prove(bytes, guest, challenge.text);
      proved = true;
    }
    for (int texts = bytes.byte() % 8; texts > 0; --texts) {
      speak(bytes, guest, guest.get());
      admit();
      MeetingMessage message;
      for (Door::Entered& one : entered)
        while (one.connection.receive(message) == MeetingConnection::Received::message)
          static_cast<void>(admission::parted(message.text));
    }
  }
  if (!entered.empty() && !proved) throw Broken("a door lets in who has proved nothing");
}

// A visitor of a host of the fuzzer's.
void visit(Bytes bytes) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  MeetingConnection guest(os::FileDescriptor(ends[0]), admission::kLongestMessage);
  MeetingConnection host(os::FileDescriptor(ends[1]), admission::kLongestMessage);
  Handshake own{.key = key(), .host_rank = 0, .host_nonce = admission::fresh_nonce()};
  std::optional<std::string> welcome;
  Visit visitor(key(), 0, 1, kSize);
  while (!bytes.empty()) {
    const unsigned char what = bytes.byte();
    if (what == 0) host.say(Kind::challenge, own.host_nonce);
    if (what == 1 && welcome) host.say(Kind::welcome, *welcome);
    if (what > 1) speak(bytes, host, host.get());
    host.send();
    for (MeetingMessage message; guest.receive(message) == MeetingConnection::Received::message;) {
      const Visit::State state = visitor.hear(message, guest);
      if (state == Visit::State::welcome && !(welcome && message.text == *welcome))
        throw Broken("a visitor takes another welcome than its host's");
      if (state != Visit::State::waiting) return;
      guest.send();
    }
    for (MeetingMessage message; host.receive(message) == MeetingConnection::Received::message;) {
      const auto proof = admission::read_hello(message.text, own);
      if (!proof) throw Broken("a visitor's hello cannot be read");
      if (admission::equal_secrets(*proof, own.guest_proof())) welcome = own.host_proof();
    }
  }
}

void read_texts(std::string_view bytes) {
  if (const auto parts = admission::parted(bytes); parts && admission::joined(*parts) != bytes)
    throw Broken("texts that are joined again differ");
  Handshake handshake{.key = key()};
  static_cast<void>(admission::read_hello(bytes, handshake));
}

}  // namespace

// What strangers say to a rank that listens, and to one that visits another.
void meeting(std::string_view bytes) {
  Bytes rest(bytes);
  switch (rest.byte() % 3) {
    case 0:
      return knock(rest);
    case 1:
      return visit(rest);
    default:
      return read_texts(rest.rest());
  }
}

}  // namespace dear::fuzz
