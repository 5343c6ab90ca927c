#pragma once

#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "dear/base/admission/message.h"

namespace dear::launch {

// A message between two launchers: a verb and what belongs to it.
using Words = std::vector<std::string>;

// One end of a connection between two launchers of a job, each of which has proved that it has the key. Never
// waits.
class HostWire {
 public:
  explicit HostWire(admission::MeetingConnection connection);

  void say(const Words& words);
  void send() { connection_.send(); }
  [[nodiscard]] bool has_to_send() const { return connection_.has_to_send(); }
  // Takes what came since the last call. Nothing comes any more once the other end is gone.
  std::vector<Words> hear();
  [[nodiscard]] bool is_gone() const { return gone_; }
  [[nodiscard]] pollfd to_poll() const;
  // The address of this host towards the other one.
  [[nodiscard]] std::string own_address() const;

 private:
  admission::MeetingConnection connection_;
  bool gone_ = false;
};

// The number in one of these words; none where there is no such word, or no number.
std::optional<long> number_in(const Words& words, std::size_t at);

}  // namespace dear::launch
