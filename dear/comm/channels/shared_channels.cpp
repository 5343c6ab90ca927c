#include "dear/comm/channels/shared_channels.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::channels {
namespace {

// How long a thread that waits for messages keeps its turn while another wants it, and while none does.
constexpr auto kWantedTurn = std::chrono::microseconds(50);
constexpr auto kTurn = std::chrono::milliseconds(1);

}  // namespace

class SharedChannels::Turn {
 public:
  explicit Turn(SharedChannels& of) : of_(of) {
    std::unique_lock lock(of_.mutex_);
    const std::uint64_t mine = of_.tickets_++;
    of_.changed_.wait(lock, [&] { return of_.served_ == mine; });
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(of_.mutex_);
    ++of_.served_;
    if (of_.tickets_ > of_.served_) of_.changed_.notify_all();
  }

  // Until when to wait for messages in this turn.
  [[nodiscard]] Deadline end(Deadline until) const {
    const std::lock_guard lock(of_.mutex_);
    if (of_.members_ == 1) return until;
    const bool wanted = of_.tickets_ > of_.served_ + 1;
    const std::chrono::nanoseconds turn = wanted ? std::chrono::nanoseconds(kWantedTurn) : kTurn;
    return earlier(until, Deadline(SteadyClock::now() + turn));
  }

 private:
  SharedChannels& of_;
};

class SharedChannels::Member final : public Channels {
 public:
  Member(std::shared_ptr<SharedChannels> shared, std::vector<int> members, Tag first_tag)
      : shared_(std::move(shared)), members_(std::move(members)), first_tag_(first_tag) {
    const int self = whole().rank();
    const auto found = std::find(members_.begin(), members_.end(), self);
    if (found == members_.end()) {
      throw ConfigError(fmt::format("rank {} is not among those it wants channels with", self));
    }
    rank_ = static_cast<int>(found - members_.begin());
    const Turn turn(*shared_);
    const std::lock_guard lock(shared_->mutex_);
    ++shared_->members_;
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  // What a failure left unfinished the channels still know of.
  ~Member() override {
    const Turn turn(*shared_);
    if (!pairs_.empty()) shared_->keep(std::make_shared<std::deque<Pair>>(std::move(pairs_)));
    const std::lock_guard lock(shared_->mutex_);
    --shared_->members_;
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string description() const override { return whole().description(); }
  [[nodiscard]] std::string modelled_network() const override { return whole().modelled_network(); }

  void start(Transfer& transfer) override {
    const Turn turn(*shared_);
    transfer.done = false;
    Pair& pair = pairs_.emplace_back(Pair{.inner = transfer, .outer = &transfer});
    pair.inner.peer = members_[static_cast<std::size_t>(transfer.peer)];
    pair.inner.tag += first_tag_;
    whole().start(pair.inner);
    became_done_ |= settle();
  }

  bool progress() override {
    const Turn turn(*shared_);
    whole().progress();
    return settle() || std::exchange(became_done_, false);
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    for (;;) {
      const Turn turn(*shared_);
      // Another thread may have moved on what this one waits for.
      if (settle() || std::exchange(became_done_, false)) return;
      whole().wait_until(what, deadline, turn.end(until));
      if (settle() || until.expired()) return;
    }
  }

  void keep(std::shared_ptr<void> memory) override { shared_->keep(std::move(memory)); }
  void abort(const std::string& reason) noexcept override { whole().abort(reason); }

 private:
  // A transfer of the whole, and that of this group which it carries.
  struct Pair {
    Transfer inner;
    Transfer* outer;
  };

  [[nodiscard]] Channels& whole() const { return *shared_->whole_; }

  // Whether a transfer became done. Pairs stay in place while theirs is on its way: only the ends of the
  // queue move.
  bool settle() {
    bool any = false;
    for (Pair& pair : pairs_) {
      if (pair.inner.done && pair.outer != nullptr) {
        pair.outer->done = true;
        pair.outer = nullptr;
        any = true;
      }
    }
    while (!pairs_.empty() && pairs_.front().outer == nullptr) {
      pairs_.pop_front();
    }
    return any;
  }

  std::shared_ptr<SharedChannels> shared_;
  std::vector<int> members_;
  Tag first_tag_;
  int rank_ = 0;
  std::deque<Pair> pairs_;
  bool became_done_ = false;  // a transfer, since the last wait
};

std::unique_ptr<Channels> SharedChannels::open(std::vector<int> members, Tag first_tag) {
  return std::make_unique<Member>(shared_from_this(), std::move(members), first_tag);
}

void SharedChannels::keep(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

}  // namespace dear::channels
