#include "dear/base/admission/message.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace dear::admission {
namespace {

constexpr unsigned int kSilentMilliseconds = 30'000;

struct Heading {
  static constexpr std::uint64_t kMagic =
      0x33'74'65'6D'72'61'65'64;  // "dearmet3": no request of any other protocol

  std::uint64_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Heading) == 16);

}  // namespace

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    all.append(reinterpret_cast<const char*>(&length), sizeof length);
    all += text;
  }
  return all;
}

std::optional<std::vector<std::string>> parted(std::string_view text) {
  std::vector<std::string> texts;
  while (!text.empty()) {
    std::uint32_t length = 0;
    if (text.size() < sizeof length) return std::nullopt;
    std::memcpy(&length, text.data(), sizeof length);
    text.remove_prefix(sizeof length);
    if (text.size() < length) return std::nullopt;
    texts.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return texts;
}

void MeetingConnection::say(MeetingMessage::Kind kind, std::string_view text) {
  const Heading heading{.kind = static_cast<std::uint32_t>(kind),
                        .bytes = static_cast<std::uint32_t>(text.size())};
  outgoing_.append(reinterpret_cast<const char*>(&heading), sizeof heading);
  outgoing_ += text;
}

bool MeetingConnection::send() {
  while (has_to_send()) {
    const ssize_t count = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    sent_ += static_cast<std::size_t>(count);
  }
  outgoing_.clear();
  sent_ = 0;
  return true;
}

void MeetingConnection::end_when_silent() const {
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kSilentMilliseconds,
               sizeof kSilentMilliseconds);
}

void MeetingConnection::end_sending() { ::shutdown(socket_.get(), SHUT_WR); }

MeetingConnection::Received MeetingConnection::receive(MeetingMessage& message) {
  bool closed = false;
  char buffer[16 * 1024];
  Heading heading;
  std::size_t known = 0;
  for (;;) {
    known = std::min(incoming_.size(), sizeof heading);
    std::memcpy(&heading, incoming_.data(), known);  // the rest of it is as it has to be
    if (heading.magic != Heading::kMagic || heading.bytes > longest_ ||
        heading.kind > static_cast<std::uint32_t>(MeetingMessage::Kind::settled)) {
      return Received::foreign;
    }
    const std::size_t whole = sizeof heading + (known < sizeof heading ? 0 : heading.bytes);
    if (incoming_.size() == whole) break;
    const ssize_t count =
        ::recv(socket_.get(), buffer, std::min(sizeof buffer, whole - incoming_.size()), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    refused_ = count < 0 && errno == ECONNREFUSED;
    closed = count == 0 || (count < 0 && errno != EAGAIN);
    if (count <= 0) break;
    incoming_.append(buffer, static_cast<std::size_t>(count));
  }
  if (known < sizeof heading || incoming_.size() < sizeof heading + heading.bytes) {
    return closed ? Received::closed : Received::nothing_yet;
  }
  message.kind = static_cast<MeetingMessage::Kind>(heading.kind);
  message.text = incoming_.substr(sizeof heading, heading.bytes);
  incoming_.erase(0, sizeof heading + heading.bytes);
  return Received::message;
}

void MeetingConnection::wait_ready(Deadline deadline) const {
  pollfd entry = to_poll();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
}

}  // namespace dear::admission
