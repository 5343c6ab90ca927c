#include "dear/comm/shaped/testing/virtual_channels.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::channels::testing {
namespace {

struct Message {
  Tag tag = 0;
  std::vector<std::byte> bytes;
};

// What the threads share, under the mutex.
struct World {
  explicit World(int ranks) : size(index_of(ranks)), here(ranks) {}

  std::deque<Message>& messages(int from, int to) { return all[index_of(from) * size + index_of(to)]; }

  void wake(int rank) {
    asleep[index_of(rank)] = false;
    changed.notify_all();
  }
  void wake_all() {
    std::fill(asleep.begin(), asleep.end(), false);
    changed.notify_all();
  }
  // Nothing happens any more at this moment, once all ranks that are here sleep.
  void jump_if_all_sleep() {
    if (std::count(asleep.begin(), asleep.end(), true) < here || here == 0) return;
    SteadyTime next = SteadyTime::max();
    for (std::size_t rank = 0; rank < size; ++rank)
      if (asleep[rank]) next = std::min(next, wakes[rank]);
    now = std::max(now, next);
    for (std::size_t rank = 0; rank < size; ++rank)
      if (wakes[rank] <= now) asleep[rank] = false;
    changed.notify_all();
  }

  const std::size_t size;
  std::mutex mutex;
  std::condition_variable changed;
  SteadyTime now = SteadyClock::now();
  int here;
  std::vector<bool> asleep = std::vector<bool>(size);
  std::vector<SteadyTime> wakes = std::vector<SteadyTime>(size);
  std::vector<std::deque<Message>> all = std::vector<std::deque<Message>>(size * size);
  std::string failure;  // empty while all is well
};

class VirtualChannels final : public Channels {
 public:
  VirtualChannels(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  VirtualChannels(const VirtualChannels&) = delete;
  VirtualChannels& operator=(const VirtualChannels&) = delete;
  ~VirtualChannels() override {
    const std::lock_guard lock(world_->mutex);
    --world_->here;
    world_->jump_if_all_sleep();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(world_->size); }
  [[nodiscard]] std::string description() const override { return "virtual threads"; }

  void start(Transfer& transfer) override {
    const std::lock_guard lock(world_->mutex);
    throw_failure();
    transfer.done = false;
    on_their_way_.push_back(&transfer);
    if (transfer.direction == Transfer::Direction::receive) return;
    world_->messages(rank_, transfer.peer)
        .push_back({.tag = transfer.tag, .bytes = {transfer.data, transfer.data + transfer.bytes}});
    world_->wake(transfer.peer);
  }

  bool progress() override {
    const std::lock_guard lock(world_->mutex);
    throw_failure();
    return advance();
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    std::unique_lock lock(world_->mutex);
    for (;;) {
      throw_failure();
      if (advance()) return;
      if (world_->now >= deadline.at()) {
        fail(fmt::format("rank {} waits too long: {}", rank_, what()));
        throw TimeoutError(world_->failure);
      }
      if (world_->now >= until.at()) return;
      world_->asleep[index_of(rank_)] = true;
      world_->wakes[index_of(rank_)] = earlier(deadline, until).at();
      world_->jump_if_all_sleep();
      world_->changed.wait(lock, [&] { return !world_->asleep[index_of(rank_)]; });
    }
  }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(world_->mutex);
    fail(reason);
  }

 private:
  void fail(const std::string& why) const {
    if (world_->failure.empty()) world_->failure = why;
    world_->wake_all();
  }
  void throw_failure() const {
    if (!world_->failure.empty()) throw TransportError(world_->failure);
  }

  bool advance() {
    bool any = false;
    for (auto at = on_their_way_.begin(); at != on_their_way_.end();) {
      if ((*at)->direction == Transfer::Direction::send || take(**at)) {
        (*at)->done = any = true;
        at = on_their_way_.erase(at);
      } else {
        ++at;
      }
    }
    return any;
  }

  // Whether the message of a receive is there.
  bool take(Transfer& receive) {
    auto& messages = world_->messages(receive.peer, rank_);
    const auto message = std::find_if(messages.begin(), messages.end(),
                                      [&](const Message& one) { return one.tag == receive.tag; });
    if (message == messages.end()) return false;
    if (std::cmp_not_equal(message->bytes.size(), receive.bytes)) {
      fail(fmt::format("rank {} sent {} bytes to rank {}, which expects {}", receive.peer,
                       message->bytes.size(), rank_, receive.bytes));
      throw_failure();
    }
    if (receive.bytes > 0) std::memcpy(receive.data, message->bytes.data(), message->bytes.size());
    messages.erase(message);
    return true;
  }

  std::shared_ptr<World> world_;
  int rank_;
  std::deque<Transfer*> on_their_way_;
};

}  // namespace

VirtualWorld make_virtual_world(int size) {
  const auto world = std::make_shared<World>(size);
  VirtualWorld made{.channels = {}, .now = [world] {
                      const std::lock_guard lock(world->mutex);
                      return world->now;
                    }};
  for (int rank = 0; rank < size; ++rank)
    made.channels.push_back(std::make_unique<VirtualChannels>(world, rank));
  return made;
}

PairCluster cluster_of_links(PairCluster::Matrix bytes_per_second, PairCluster::Matrix latency_seconds) {
  PairCluster cluster{.name = "drawn by hand",
                      .devices = {},
                      .bytes_per_second = std::move(bytes_per_second),
                      .latency_seconds = std::move(latency_seconds)};
  for (std::size_t device = 0; device < cluster.bytes_per_second.size(); ++device)
    cluster.devices.push_back(
        {.name = fmt::format("device {}", device), .flops_per_second = 1e12, .memory_bytes = 1 << 30});
  validate(cluster);
  return cluster;
}

}  // namespace dear::channels::testing
