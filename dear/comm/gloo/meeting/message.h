#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::channels {

// A message between two ranks at a meeting: a kind and a text, in TCP's stream behind a heading that tells
// one from anything else that may connect to a port.
struct MeetingMessage {
  enum class Kind : std::uint32_t { hello, welcome, messages, ask, timeout, mismatch, lost };
  Kind kind = Kind::hello;
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
  // `longest`: of a text that may come.
  MeetingConnection(os::FileDescriptor socket, std::size_t longest)
      : socket_(std::move(socket)), longest_(longest) {}

  [[nodiscard]] int get() const { return socket_.get(); }

  void say(MeetingMessage::Kind kind, std::string_view text = "");
  // Sends what it can of what was said. False once the connection broke.
  bool send();
  [[nodiscard]] bool has_to_send() const { return sent_ < outgoing_.size(); }
  void end_sending();

  enum class Received : std::uint8_t { message, nothing_yet, closed, foreign };
  Received receive(MeetingMessage& message);

  // Sleeps until there is something to receive, or to send where something waits for it.
  void wait_ready(Deadline deadline) const;

 private:
  os::FileDescriptor socket_;
  std::size_t longest_;
  std::string outgoing_;
  std::size_t sent_ = 0;
  std::string incoming_;
};

}  // namespace dear::channels
