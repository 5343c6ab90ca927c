#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/channels/channels.h"

namespace dear::systems::edge {

// A vector of fp64 on its way to or from another rank, round after round.
struct Message {
  std::vector<double> numbers;  // of one length always
  channels::Transfer transfer{};
};

// The messages of one rank over channels, each awaited within a timeout. One thread calls. Errors are those
// of the channels.
class Messages {
 public:
  Messages(std::unique_ptr<channels::Channels> channels, std::chrono::duration<double> timeout)
      : timeout_(timeout), channels_(std::move(channels)) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { channels_->keep(memory_); }  // after a failure messages may still be under way

  // Stays where it is as long as this object lives.
  Message& make(channels::Transfer::Direction direction, int peer, std::int64_t numbers) {
    Message& message = memory_->emplace_back();
    message.numbers.resize(static_cast<std::size_t>(numbers));
    message.transfer.direction = direction;
    message.transfer.peer = peer;
    message.transfer.bytes = numbers * static_cast<std::int64_t>(sizeof(double));
    return message;
  }
  void start(Message& message) {
    message.transfer.data = reinterpret_cast<std::byte*>(message.numbers.data());
    message.transfer.done = false;
    channels_->start(message.transfer);
  }
  // Returns when one more of those that were started is through. `what` is for errors.
  void wait(const std::string& what) {
    channels_->wait([&] { return what; }, Deadline::after(timeout_));
  }
  void finish(const Message& message, const std::string& what) {
    while (!message.transfer.done) wait(what);
  }

 private:
  const std::chrono::duration<double> timeout_;
  std::shared_ptr<std::deque<Message>> memory_ = std::make_shared<std::deque<Message>>();
  std::unique_ptr<channels::Channels> channels_;
};

}  // namespace dear::systems::edge
