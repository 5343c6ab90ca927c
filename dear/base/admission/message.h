#pragma once

#include <cstdint>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/base/os/at_fork.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::admission {

// A message between two ranks at a meeting: a kind and a text, in TCP's stream behind a heading that tells
// one from anything else that may connect to a port.
struct MeetingMessage {
  enum class Kind : std::uint32_t {
    challenge,  // the listener's nonce
    hello,      // who the guest is, and its proof
    welcome,    // the listener's proof
    refused,    // the guest's proof is none
    messages,
    ask,
    timeout,
    mismatch,
    lost,
    settled  // the guest has its connections to the others; the last kind
  };
  Kind kind = Kind::challenge;
  std::string text;
};

inline constexpr std::size_t kLongestMessage = 64 * 1024;

// A text made of texts.
std::string joined(const std::vector<std::string>& texts);
// Nothing where it is not made of texts.
std::optional<std::vector<std::string>> parted(std::string_view text);

// One end of a connection between rank 0 and another. Never waits but in wait_ready().
class MeetingConnection {
 public:
  // `longest`: of a text that may come. Processes that are forked meanwhile do not have the socket.
  MeetingConnection(os::FileDescriptor socket, std::size_t longest)
      : socket_(std::move(socket)), kept_out_(socket_.get()), longest_(longest) {}
  // From now on texts of this length may come.
  void allow(std::size_t longest) { longest_ = longest; }

  [[nodiscard]] int get() const { return socket_.get(); }
  // Between hosts: sends at once, and the connection ends when the kernel of the other host acknowledges
  // nothing that is sent for 30 s.
  void end_when_silent() const;

  void say(MeetingMessage::Kind kind, std::string_view text = "");
  // Sends what it can of what was said. False once the connection broke.
  bool send();
  [[nodiscard]] bool has_to_send() const { return sent_ < outgoing_.size(); }
  void end_sending();

  // Takes no byte behind the message, so that another may go on with the socket.
  enum class Received : std::uint8_t { message, nothing_yet, closed, foreign };
  Received receive(MeetingMessage& message);

  // Whether it ended because nobody listens at the other end.
  [[nodiscard]] bool is_refused() const { return refused_; }

  // Sleeps until there is something to receive, or to send where something waits for it.
  void wait_ready(Deadline deadline) const;
  [[nodiscard]] pollfd to_poll() const {
    return {.fd = get(), .events = static_cast<short>(has_to_send() ? POLLIN | POLLOUT : POLLIN)};
  }
  // The socket, and what keeps it out of forked processes; nothing is said or heard here afterwards.
  std::pair<os::FileDescriptor, os::NotInChildren> release() {
    return {std::move(socket_), std::move(kept_out_)};
  }

 private:
  os::FileDescriptor socket_;
  os::NotInChildren kept_out_;
  std::size_t longest_;
  bool refused_ = false;
  std::string outgoing_;
  std::size_t sent_ = 0;
  std::string incoming_;
};

}  // namespace dear::admission
