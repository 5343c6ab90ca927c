#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/base/admission/message.h"
#include "dear/base/admission/wires.h"
#include "dear/base/os/peers.h"
#include "dear/base/recorder/recorder.h"

namespace dear::liveness {

// A message between two ranks that are connected.
struct Message {
  enum class Kind : char {
    beat = 'B',     // where the rank is: a Standing
    left = 'L',     // up, and to the children: the rank ends in good order
    word = 'W',     // up: a failure
    verdict = 'V',  // down
    ask = 'A',      // down: where is this rank?
    place = 'P'     // up
  };
  Kind kind = Kind::beat;
  int rank = 0;
  std::string text{};
};

// "is in collective 7, all-reduce, after its step 3".
std::string describe(const recorder::Standing& standing);

// A rank that this one is connected with.
class Neighbour {
 public:
  // `is_near`: on this host, where its process is watched. TransportError where it cannot be.
  Neighbour(int rank, bool is_near, admission::Wires::Wire wire);

  const int rank;
  const bool is_near;
  bool has_left = false;

  void say(const Message& message);
  // Says it unless the one before is still on its way.
  void beat(const recorder::Standing& standing);
  void send() { connection_.send(); }
  void add_to(std::vector<pollfd>& entries) const;

  // The messages that came since the last call. None comes any more once the neighbour is gone.
  std::vector<Message> hear();
  [[nodiscard]] bool is_gone() const { return gone_; }
  [[nodiscard]] bool is_stopped() const { return process_ && process_->stopped(0); }
  [[nodiscard]] std::string place() const;

 private:
  admission::MeetingConnection connection_;
  os::FileDescriptor process_file_;  // of a rank on this host
  std::optional<os::Peers> process_;
  std::optional<recorder::Standing> standing_;
  bool gone_ = false;
};

}  // namespace dear::liveness
