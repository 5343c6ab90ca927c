#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/awaited/channels/point_to_point.h"

namespace dear::channels {

// [Note: failure detection] Each rank keeps one receive from every other open for one message, the last that
// it will send: that it leaves, or that it failed, and why. So a failure reaches all ranks at once. The
// messaging library ends this receive also when the connection breaks, which is how a death is noticed: Gloo
// tells nothing to messages that are half through. A rank that leaves or failed waits for a last word from
// each peer in return: Gloo has no place for a message whose receive is gone, and what has not arrived when a
// connection closes never will. Before that a rank may ask whether a peer is there; the thread that listens
// answers, so a rank that does not is stopped, or has no way to us. The answer says whether that rank waits
// for others itself.
class FailureDetector {
 public:
  enum class Kind : std::uint8_t { left, failed, lost };
  // Called once for a peer at most, on a thread of its own. `text` says why it failed, or what the messaging
  // library says of the broken connection.
  using Listener = std::function<void(int peer, Kind kind, const std::string& text)>;

  // Whether this rank waits for another. Called on any thread.
  using Waits = std::function<bool()>;

  FailureDetector(PointToPoint& point_to_point, Listener listener, Waits waits);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;
  // Connections to ranks that have not said their last word break.
  ~FailureDetector();

  // Each rank says one last word to a peer: the first of these calls counts.
  // Returns when all peers have heard it, or are gone, or at the deadline.
  void say_failed(const std::string& why, Deadline deadline) noexcept;
  // Returns when all peers have said theirs, or at the deadline.
  void leave(Deadline deadline) noexcept;

  // The ranks that give no answer by the deadline, though they have not said their last word.
  std::vector<int> silent_ranks(Deadline deadline) noexcept;
  // Those that answered, and waited for nobody.
  std::vector<int> idle_ranks() noexcept;

  // Returns when this peer has said its last word, or at the deadline; whether it has.
  bool wait_for(int rank, Deadline deadline) noexcept;

 private:
  enum class Message : std::uint8_t { ask, answer, left, failed };
  struct Word;
  struct Said {
    std::unique_ptr<Word> word;
    std::unique_ptr<Posted> sending;
  };
  struct Peer {
    int rank = 0;
    std::unique_ptr<Word> heard;
    std::unique_ptr<Posted> hearing;
    std::vector<Said> said;
    bool has_my_last_word = false;
    bool has_answered = false;
    bool waits = false;       // as it answered
    bool is_through = false;  // has said its last word
    std::thread thread;
  };

  void close() noexcept;
  void open_ear(Peer& peer);
  void listen(Peer& peer);
  bool hear(Peer& peer);
  void say(Peer& peer, Message message, const std::string& text) noexcept;
  void conclude(Peer& peer, Kind kind, const std::string& text);

  PointToPoint& point_to_point_;
  const Listener listener_;
  const Waits waits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Peer>> peers_;  // without this rank
  std::atomic<bool> closing_ = false;
};

}  // namespace dear::channels
