#include "dear/base/admission/door.h"

#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace dear::admission {
namespace {

using Kind = MeetingMessage::Kind;

constexpr std::chrono::duration<double> kPatience = std::chrono::seconds(10);
constexpr std::size_t kLongestOfStrangers = 1024;
constexpr std::size_t kMostStrangers = 64;  // and as many as there are ranks

}  // namespace

os::FileDescriptor listen_on(const sockaddr* address, unsigned length) {
  os::FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return socket;
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // of connections that have ended
  const int off = 0;
  if (address->sa_family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address, length) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    socket.close();
    errno = error;
  }
  return socket;
}

bool is_of_this_user(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return false;
  ucred peer{};
  length = sizeof peer;
  return domain != AF_UNIX ||
         (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid());
}

void poll_until(std::vector<pollfd>& entries, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000)));
}

Door::Door(os::FileDescriptor listener, std::string key, int rank, int size, std::size_t longest)
    : listener_(std::move(listener)),
      kept_out_(listener_.get()),
      key_(std::move(key)),
      rank_(rank),
      longest_(longest),
      most_(kMostStrangers + static_cast<std::size_t>(size)) {}

void Door::add_to(std::vector<pollfd>& entries) const {
  entries.push_back({.fd = listener_.get(), .events = POLLIN});
  for (const Stranger& stranger : strangers_) entries.push_back(stranger.connection.to_poll());
}

void Door::accept_strangers() {
  for (std::size_t count = 0; count < most_; ++count) {
    os::FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    if (!is_of_this_user(socket.get())) continue;
    Stranger& stranger = strangers_.emplace_back(
        MeetingConnection(std::move(socket), kLongestOfStrangers),
        Handshake{.key = key_, .host_rank = rank_, .host_nonce = fresh_nonce()}, Deadline::after(kPatience));
    stranger.connection.say(Kind::challenge, stranger.handshake.host_nonce);
    if (strangers_.size() > most_) {
      strangers_.pop_front();
      ++turned_away_;
    }
  }
}

std::vector<Door::Entered> Door::admit() {
  accept_strangers();
  std::vector<Entered> entered;
  strangers_.remove_if([&](Stranger& stranger) {
    if (!hear(stranger, entered) && !stranger.deadline.expired()) return false;
    return true;
  });
  turned_away_ = std::min(turned_away_, 1'000'000);
  return entered;
}

bool Door::hear(Stranger& stranger, std::vector<Entered>& entered) {
  MeetingMessage message;
  switch (stranger.connection.receive(message)) {
    case MeetingConnection::Received::nothing_yet:
      if (stranger.connection.send()) return false;
      break;
    case MeetingConnection::Received::message: {
      const auto proof =
          message.kind == Kind::hello ? read_hello(message.text, stranger.handshake) : std::nullopt;
      if (proof && equal_secrets(*proof, stranger.handshake.guest_proof())) {
        stranger.connection.allow(longest_);
        entered.push_back({.connection = std::move(stranger.connection),
                           .rank = stranger.handshake.guest_rank,
                           .size = stranger.handshake.size,
                           .welcome = stranger.handshake.host_proof()});
        return true;
      }
      if (message.kind == Kind::hello) {
        stranger.connection.say(Kind::refused);
        stranger.connection.send();
      }
      break;
    }
    default:
      break;
  }
  ++turned_away_;
  return true;
}

Visit::Visit(std::string key, int host, int rank, int size)
    : key_(std::move(key)), handshake_{.host_rank = host, .guest_rank = rank, .size = size} {}

Visit::State Visit::hear(const MeetingMessage& message, MeetingConnection& connection) {
  handshake_.key = key_;
  switch (message.kind) {
    case Kind::challenge:
      if (!handshake_.host_nonce.empty() || message.text.empty()) return State::foreign;
      handshake_.host_nonce = message.text;
      handshake_.guest_nonce = fresh_nonce();
      connection.say(Kind::hello, hello_of(handshake_));
      return State::waiting;
    case Kind::welcome:
      if (handshake_.guest_nonce.empty() || !equal_secrets(message.text, handshake_.host_proof()))
        return State::foreign;
      return State::welcome;
    case Kind::refused:
      return State::refused;
    default:
      return State::foreign;
  }
}

}  // namespace dear::admission
