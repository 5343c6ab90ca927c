#include "dear/comm/channels/testing/thread_channels.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/peers.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels::testing {
namespace {

constexpr std::int64_t kCopiedBytes = 1024;

struct SentMessage {
  Tag tag = 0;
  std::int64_t bytes = 0;
  std::vector<std::byte> copy;
  Transfer* send = nullptr;  // null when the bytes are in `copy`
};

// What the threads share, under the mutex.
struct World {
  explicit World(int ranks) : size(static_cast<std::size_t>(ranks)) {}

  std::deque<SentMessage>& messages(int from, int to) {
    return messages_[static_cast<std::size_t>(from) * size + static_cast<std::size_t>(to)];
  }
  void fail(const std::string& why, bool late = false) {
    if (failure.empty()) {
      failure = why;
      is_late = late;
    }
    changed.notify_all();
  }
  // An error of the caller's own: threads share no exception.
  void throw_failure() const {
    if (failure.empty()) return;
    if (is_late) throw TimeoutError(failure);
    throw TransportError(failure);
  }

  const std::size_t size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<Transfer*>> received =
      std::vector<std::vector<Transfer*>>(size);  // sends, by sender
  std::vector<bool> left = std::vector<bool>(size);
  std::string failure;  // empty while all is well
  bool is_late = false;

 private:
  std::vector<std::deque<SentMessage>> messages_ = std::vector<std::deque<SentMessage>>(size * size);
};

class ThreadChannels final : public Channels {
 public:
  ThreadChannels(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ThreadChannels(const ThreadChannels&) = delete;
  ThreadChannels& operator=(const ThreadChannels&) = delete;
  ~ThreadChannels() override {
    const std::lock_guard lock(world_->mutex);
    world_->left[static_cast<std::size_t>(rank_)] = true;
    for (int peer = 0; peer < size(); ++peer) {
      std::erase_if(world_->messages(rank_, peer),
                    [](const SentMessage& one) { return one.send != nullptr; });
    }
    world_->changed.notify_all();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(world_->size); }
  [[nodiscard]] std::string description() const override { return "threads"; }

  void start(Transfer& transfer) override {
    const std::lock_guard lock(world_->mutex);
    throw_failure();
    transfer.done = false;
    if (transfer.direction == Transfer::Direction::receive) {
      receives_.push_back(&transfer);
      return;
    }
    SentMessage message{.tag = transfer.tag, .bytes = transfer.bytes};
    if (transfer.bytes <= kCopiedBytes) {
      message.copy.assign(transfer.data, transfer.data + transfer.bytes);
      world_->received[static_cast<std::size_t>(rank_)].push_back(&transfer);
    } else {
      message.send = &transfer;
      sends_.push_back(&transfer);
    }
    world_->messages(rank_, transfer.peer).push_back(std::move(message));
    world_->changed.notify_all();
  }

  bool progress() override {
    const std::lock_guard lock(world_->mutex);
    throw_failure();
    return advance();
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    std::unique_lock lock(world_->mutex);
    const SteadyTime since = SteadyClock::now();
    for (;;) {
      throw_failure();
      if (advance()) return;
      for (const int peer : awaited()) {
        if (!world_->left[static_cast<std::size_t>(peer)]) continue;
        world_->fail(os::Peers().is_gone(peer, true, what()));
        throw_failure();
      }
      const Deadline end = earlier(deadline, until);
      if (world_->changed.wait_until(lock, end.at()) == std::cv_status::timeout && end.expired()) {
        throw_failure();
        if (advance() || !deadline.expired()) return;
        const std::chrono::duration<double> waited = SteadyClock::now() - since;
        world_->fail(os::Peers().are_late(awaited(), waited.count(), what()), true);
      }
    }
  }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(world_->mutex);
    world_->fail(reason);
  }

 private:
  void throw_failure() const { world_->throw_failure(); }

  // Whether a transfer became done.
  bool advance() {
    bool any = false;
    for (auto at = receives_.begin(); at != receives_.end();) {
      if (take(**at)) {
        (*at)->done = any = true;
        at = receives_.erase(at);
      } else {
        ++at;
      }
    }
    for (Transfer* const send : std::exchange(world_->received[static_cast<std::size_t>(rank_)], {})) {
      send->done = any = true;
      std::erase(sends_, send);
    }
    return any;
  }

  // Whether its message is there.
  bool take(Transfer& receive) {
    auto& messages = world_->messages(receive.peer, rank_);
    const auto message = std::find_if(messages.begin(), messages.end(),
                                      [&](const SentMessage& one) { return one.tag == receive.tag; });
    if (message == messages.end()) return false;
    if (message->bytes != receive.bytes) {
      world_->fail(fmt::format("rank {} sent {} bytes to rank {}, which expects {}", receive.peer,
                               message->bytes, rank_, receive.bytes));
      throw_failure();
    }
    if (receive.bytes > 0) {
      std::memcpy(receive.data, message->send != nullptr ? message->send->data : message->copy.data(),
                  static_cast<std::size_t>(receive.bytes));
    }
    if (message->send != nullptr) {
      world_->received[static_cast<std::size_t>(receive.peer)].push_back(message->send);
      world_->changed.notify_all();
    }
    messages.erase(message);
    return true;
  }

  [[nodiscard]] std::vector<int> awaited() const {
    std::vector<int> peers;
    for (const Transfer* const one : receives_) peers.push_back(one->peer);
    for (const Transfer* const one : sends_) peers.push_back(one->peer);
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  std::shared_ptr<World> world_;
  int rank_;
  std::deque<Transfer*> receives_, sends_;  // those that are not done
};

}  // namespace

std::vector<std::unique_ptr<Channels>> make_thread_channels(int size) {
  const auto world = std::make_shared<World>(size);
  std::vector<std::unique_ptr<Channels>> channels;
  for (int rank = 0; rank < size; ++rank) {
    channels.push_back(std::make_unique<ThreadChannels>(world, rank));
  }
  return channels;
}

}  // namespace dear::channels::testing
