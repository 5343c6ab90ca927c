#include "dear/comm/channels/testing/faulty_channels.h"

#include <algorithm>
#include <array>
#include <list>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace dear::channels::testing {
namespace {

constexpr int kMostLooks = 200;                  // of a rank, for which a message is late
constexpr std::chrono::milliseconds kSlice(20);  // of a wait, between looks for a fault
constexpr int kLooksOfASwap = 500;               // after which no other message has come to overtake it

class FaultyChannels final : public Channels {
 public:
  FaultyChannels(std::unique_ptr<Channels> channels, FaultPlan plan, std::shared_ptr<FaultRecord> record)
      : plan_(std::move(plan)),
        record_(std::move(record)),
        random_(plan_.seed),
        channels_(std::move(channels)) {}

  [[nodiscard]] int rank() const override { return channels_->rank(); }
  [[nodiscard]] int size() const override { return channels_->size(); }
  [[nodiscard]] std::string description() const override { return "faulty " + channels_->description(); }

  void start(Transfer& transfer) override {
    if (transfer.direction == Transfer::Direction::receive) return channels_->start(transfer);
    const bool falls = falls_on(transfer);
    if (falls) {
      record_->at = SteadyClock::now();
      ++record_->happened;
    }
    if (falls && plan_.fault == Fault::drop) return dropped_.push_back(&transfer);
    if (falls && plan_.fault == Fault::stall) stalled_ = true;
    if (stalled_) return;
    if (falls && (plan_.fault == Fault::delay || plan_.fault == Fault::swap)) {
      looks_ =
          plan_.fault == Fault::swap ? kLooksOfASwap : std::uniform_int_distribution(1, kMostLooks)(random_);
      return held_.push_back(&transfer);
    }
    if (falls && (plan_.fault == Fault::corrupt || plan_.fault == Fault::shorten))
      return start_altered(transfer);
    const bool follows =
        !held_.empty() && held_.front()->peer == transfer.peer && held_.front()->tag == transfer.tag;
    if (!follows) return channels_->start(transfer);
    if (plan_.fault == Fault::delay) return held_.push_back(&transfer);
    channels_->start(transfer);
    release();
  }

  bool progress() override {
    const bool inner = channels_->progress();
    look();
    return settle() || inner;
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    while (stalled_) {
      channels_->progress();  // until it throws what became of the others
      std::this_thread::yield();
    }
    while (!held_.empty())
      if (progress() || until.expired()) return;
    if (settle()) return;
    if (plan_.patience_seconds > 0) {
      until = earlier(until, Deadline::after(kSlice));
      if (record_->happened > 0)
        deadline = earlier(
            deadline, Deadline::after(std::chrono::duration<double>(plan_.patience_seconds), record_->at));
    }
    channels_->wait_until(what, deadline, until);
    settle();
  }

  void keep(std::shared_ptr<void> memory) override { channels_->keep(std::move(memory)); }
  void abort(const std::string& reason) noexcept override { channels_->abort(reason); }

 private:
  // A message that travels in the place of another.
  struct Altered {
    Transfer* original = nullptr;
    std::vector<std::byte> bytes;
    Transfer transfer;
  };

  bool falls_on(const Transfer& send) {
    if (rank() != plan_.rank || (plan_.counts ? !plan_.counts(send) : send.bytes == 0)) return false;
    return record_->counted++ == plan_.message && plan_.fault != Fault::none;
  }

  void start_altered(Transfer& transfer) {
    Altered& one = altered_.emplace_back();
    one.original = &transfer;
    one.bytes.assign(transfer.data, transfer.data + transfer.bytes);
    if (plan_.fault == Fault::shorten) {
      one.bytes.resize(std::uniform_int_distribution<std::size_t>(0, one.bytes.size() - 1)(random_));
    } else {
      const auto most = std::min(transfer.bytes, plan_.most_bytes);
      const auto bit = std::uniform_int_distribution<std::int64_t>(0, 8 * most - 1)(random_);
      one.bytes[static_cast<std::size_t>(bit / 8)] ^= std::byte{1} << static_cast<int>(bit % 8);
    }
    one.transfer = transfer;
    one.transfer.data = one.bytes.data();
    one.transfer.bytes = static_cast<std::int64_t>(one.bytes.size());
    channels_->start(one.transfer);
  }

  void release() {
    for (Transfer* const one : std::exchange(held_, {})) channels_->start(*one);
  }
  void look() {
    if (!held_.empty() && --looks_ <= 0) release();
  }
  // Whether a transfer became done in it.
  bool settle() {
    bool any = !dropped_.empty();
    for (Transfer* const one : std::exchange(dropped_, {})) one->done = true;
    for (Altered& one : altered_) {
      if (!one.transfer.done || one.original == nullptr) continue;
      std::exchange(one.original, nullptr)->done = any = true;
    }
    return any;
  }

  const FaultPlan plan_;
  const std::shared_ptr<FaultRecord> record_;
  std::mt19937 random_;
  bool stalled_ = false;
  int looks_ = 0;  // that are left until what is held starts
  std::vector<Transfer*> held_, dropped_;
  std::list<Altered> altered_;
  std::unique_ptr<Channels> channels_;  // gone first, since it reads what was altered
};

constexpr std::array<const char*, 7> kNames = {"none",    "delay",   "swap", "drop",
                                               "shorten", "corrupt", "stall"};

}  // namespace

std::string to_string(const FaultPlan& plan) {
  return fmt::format("{} of message {} of rank {}, seed {}", kNames[static_cast<std::size_t>(plan.fault)],
                     plan.message, plan.rank, plan.seed);
}

std::unique_ptr<Channels> make_faulty(std::unique_ptr<Channels> channels, FaultPlan plan,
                                      std::shared_ptr<FaultRecord> record) {
  return std::make_unique<FaultyChannels>(std::move(channels), std::move(plan), std::move(record));
}

}  // namespace dear::channels::testing
