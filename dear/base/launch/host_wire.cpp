#include "dear/base/launch/host_wire.h"

#include <charconv>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <utility>

namespace dear::launch {
namespace {

constexpr int kIdleSeconds = 5, kProbeSeconds = 5, kProbes = 5;

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

HostWire::HostWire(admission::MeetingConnection connection) : connection_(std::move(connection)) {
  connection_.allow(admission::kLongestMessage);
  const int socket = connection_.get();
  connection_.end_when_silent();
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void HostWire::say(const Words& words) {
  connection_.say(admission::MeetingMessage::Kind::messages, admission::joined(words));
  connection_.send();
}

std::vector<Words> HostWire::hear() {
  std::vector<Words> all;
  if (gone_) return all;
  if (!connection_.send()) gone_ = true;
  admission::MeetingMessage message;
  for (;;) {
    switch (connection_.receive(message)) {
      case admission::MeetingConnection::Received::nothing_yet:
        return all;
      case admission::MeetingConnection::Received::message:
        if (auto words = admission::parted(message.text); words && !words->empty()) {
          all.push_back(*std::move(words));
          continue;
        }
        break;
      default:
        break;
    }
    gone_ = true;
    return all;
  }
}

pollfd HostWire::to_poll() const {
  pollfd file = connection_.to_poll();
  if (gone_) file.fd = -1;
  return file;
}

std::string HostWire::own_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST] = {};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(connection_.get(), generic, &length) != 0 ||
      ::getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

std::optional<long> number_in(const Words& words, std::size_t at) {
  if (at >= words.size()) return std::nullopt;
  const std::string& text = words[at];
  long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace dear::launch
