#include "dear/base/liveness/neighbour.h"

#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/collective.h"

namespace dear::liveness {
namespace {

// Of a message: a verdict is the longest.
constexpr std::size_t kLongest = 8 * 1024;

os::FileDescriptor process_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return os::watch_process(peer.pid);
}

std::vector<os::FileDescriptor> copy_of(const os::FileDescriptor& file) {
  std::vector<os::FileDescriptor> copies;
  copies.emplace_back(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  return copies;
}

}  // namespace

std::string describe(const recorder::Standing& standing) {
  std::string text = standing.at_files        ? "reads or writes a checkpoint"
                     : standing.in_collective ? fmt::format("is in collective {}, {}", standing.collective,
                                                            recorder::name_of_collective(standing.kind))
                                              : "is in the program's own code";
  if (standing.steps > 0) text += fmt::format(", after its step {}", standing.steps);
  return text;
}

Neighbour::Neighbour(int rank, bool is_near, admission::Wires::Wire wire)
    : rank(rank), is_near(is_near), connection_(std::move(wire.socket), kLongest) {
  if (is_near) {
    process_file_ = process_of(connection_.get());
    process_.emplace(copy_of(process_file_));
    return;
  }
  connection_.end_when_silent();
}

void Neighbour::say(const Message& message) {
  std::string text(1, static_cast<char>(message.kind));
  const auto of = static_cast<std::int32_t>(message.rank);
  text.append(reinterpret_cast<const char*>(&of), sizeof of);
  connection_.say(admission::MeetingMessage::Kind::messages, text + message.text);
}

void Neighbour::beat(const recorder::Standing& standing) {
  static_assert(std::is_trivially_copyable_v<recorder::Standing>);
  if (connection_.has_to_send()) return;
  say({.kind = Message::Kind::beat,
       .text = std::string(reinterpret_cast<const char*>(&standing), sizeof standing)});
}

void Neighbour::add_to(std::vector<pollfd>& entries) const {
  entries.push_back(connection_.to_poll());
  if (process_file_.is_open()) entries.push_back({.fd = process_file_.get(), .events = POLLIN});
}

std::vector<Message> Neighbour::hear() {
  using Received = admission::MeetingConnection::Received;
  std::vector<Message> heard;
  // What it said last is there when its process has ended.
  const bool ended = process_ && process_->ended(0);
  admission::MeetingMessage received;
  Received how = Received::nothing_yet;
  while ((how = connection_.receive(received)) == Received::message) {
    Message message;
    std::int32_t of = 0;
    if (received.text.size() < 1 + sizeof of) continue;
    message.kind = static_cast<Message::Kind>(received.text[0]);
    std::memcpy(&of, received.text.data() + 1, sizeof of);
    message.rank = of;
    message.text = received.text.substr(1 + sizeof of);
    if (message.kind != Message::Kind::beat) {
      heard.push_back(std::move(message));
    } else if (message.text.size() == sizeof(recorder::Standing)) {
      standing_.emplace();
      std::memcpy(&*standing_, message.text.data(), sizeof *standing_);
    }
  }
  gone_ = ended || how != Received::nothing_yet;
  return heard;
}

std::string Neighbour::place() const {
  if (is_stopped())
    return fmt::format("is stopped by a signal (continue with: kill -CONT {})", process_->pid(0));
  return standing_ ? describe(*standing_) : "";
}

}  // namespace dear::liveness
