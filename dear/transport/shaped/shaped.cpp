#include "dear/transport/shaped/shaped.h"

#include <algorithm>
#include <list>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::transport {
namespace {

// While a message is on its modelled way, the real ones behind it are looked after so often.
constexpr auto kSlice = std::chrono::microseconds(100);

// Ahead of each message: when it had the sender's port.
using Stamp = std::int64_t;

struct InFlight {
  Transfer* owner = nullptr;
  Stamp stamp = 0;
  Transfer stamp_transfer;
  Transfer content;
  bool timed = false;  // `due` is known, and the content is here
  SteadyTime due{};
};

class ShapedChannels final : public Channels {
 public:
  ShapedChannels(std::unique_ptr<Channels> inner, Network network)
      : network_(std::move(network)), inner_(std::move(inner)) {
    if (!(network_.link.alpha_seconds >= 0 && network_.link.beta_seconds_per_byte >= 0)) {
      throw ConfigError(
          fmt::format("the modelled network {} has negative times: give both as 0 or more", network_.name));
    }
  }

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("{} over a modelled network, {}", inner_->description(), network_.name);
  }

  void start(Transfer& transfer) override {
    transfer.done = false;
    InFlight& one = pending_.emplace_back();
    one.owner = &transfer;
    one.content = transfer;
    one.stamp_transfer = transfer;
    one.stamp_transfer.data = reinterpret_cast<std::byte*>(&one.stamp);
    one.stamp_transfer.bytes = sizeof one.stamp;
    if (transfer.direction == Transfer::Direction::send) {
      const SteadyTime begin = std::max(SteadyClock::now(), out_free_at_);
      out_free_at_ = one.due = begin + time_of(transfer.bytes);
      one.stamp = begin.time_since_epoch() / std::chrono::nanoseconds(1);
    }
    inner_->start(one.stamp_transfer);
    inner_->start(one.content);
  }

  bool progress() override {
    inner_->progress();
    return deliver();
  }

  void wait(const Describe& what, Deadline deadline) override {
    while (!progress()) {
      const auto on_its_way =
          std::min_element(pending_.begin(), pending_.end(),
                           [](const InFlight& a, const InFlight& b) { return until(a) < until(b); });
      if (on_its_way == pending_.end() || !on_its_way->timed) {
        inner_->wait(what, deadline);
        continue;
      }
      if (deadline.expired()) {
        fail_late(on_its_way->owner->peer, what);
      }
      std::this_thread::sleep_until(std::min({on_its_way->due, SteadyClock::now() + kSlice, deadline.at()}));
    }
  }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  static SteadyTime until(const InFlight& one) { return one.timed ? one.due : SteadyTime::max(); }

  [[nodiscard]] SteadyClock::duration time_of(std::int64_t bytes) const {
    const Link& link = network_.link;
    return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(
        link.alpha_seconds + static_cast<double>(bytes) * link.beta_seconds_per_byte));
  }

  bool deliver() {
    bool completed = false;
    const SteadyTime now = SteadyClock::now();
    for (auto one = pending_.begin(); one != pending_.end();) {
      if (!one->timed && one->stamp_transfer.done && one->content.done) {
        one->timed = true;
        if (one->owner->direction == Transfer::Direction::receive) {
          const SteadyTime left{std::chrono::nanoseconds(one->stamp)};
          in_free_at_ = one->due = std::max(left, in_free_at_) + time_of(one->owner->bytes);
        }
      }
      if (one->timed && now >= one->due) {
        one->owner->done = true;
        completed = true;
        one = pending_.erase(one);
      } else {
        ++one;
      }
    }
    return completed;
  }

  [[noreturn]] void fail_late(int peer, const Describe& what) {
    const std::string message = fmt::format(
        "the modelled network {} does not carry a message between rank {} and rank {} within the timeout "
        "while they {}: raise the timeout or model a faster network",
        network_.name, rank(), peer, what());
    inner_->abort(message);
    throw TimeoutError(message);
  }

  Network network_;
  std::list<InFlight> pending_;  // in the order of their start
  SteadyTime out_free_at_{};
  SteadyTime in_free_at_{};
  std::unique_ptr<Channels> inner_;  // gone first: it may know of what is pending
};

}  // namespace

std::unique_ptr<Channels> make_shaped_channels(std::unique_ptr<Channels> inner, const Network& network) {
  return std::make_unique<ShapedChannels>(std::move(inner), network);
}

}  // namespace dear::transport
