#include "dear/transport/subset.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::transport {
namespace {

class Subset final : public Channels {
 public:
  Subset(std::unique_ptr<Channels> whole, std::vector<int> members)
      : whole_(std::move(whole)), members_(std::move(members)) {
    const auto self = std::find(members_.begin(), members_.end(), whole_->rank());
    if (self == members_.end()) {
      throw ConfigError(fmt::format("rank {} is not among those it wants channels with", whole_->rank()));
    }
    rank_ = static_cast<int>(self - members_.begin());
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string description() const override { return whole_->description(); }

  void start(Transfer& transfer) override {
    on_their_way_.push_back({.inner = transfer, .outer = &transfer});
    Pair& pair = on_their_way_.back();
    pair.inner.peer = members_[static_cast<std::size_t>(transfer.peer)];
    pair.inner.done = false;
    whole_->start(pair.inner);
    settle();
  }

  bool progress() override {
    const bool any = whole_->progress();
    settle();
    return any;
  }

  void wait(const Describe& what, Deadline deadline) override {
    whole_->wait(what, deadline);
    settle();
  }

  void abort(const std::string& reason) noexcept override { whole_->abort(reason); }

 private:
  struct Pair {
    Transfer inner;
    Transfer* outer;
  };

  // Pairs stay in place while theirs is on its way: only the ends of the queue move.
  void settle() {
    for (Pair& pair : on_their_way_) {
      if (pair.inner.done && pair.outer != nullptr) {
        pair.outer->done = true;
        pair.outer = nullptr;
      }
    }
    while (!on_their_way_.empty() && on_their_way_.front().outer == nullptr) {
      on_their_way_.pop_front();
    }
  }

  std::deque<Pair> on_their_way_;  // outlives the channels that know of them
  std::unique_ptr<Channels> whole_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Channels> make_subset(std::unique_ptr<Channels> whole, std::vector<int> members) {
  return std::make_unique<Subset>(std::move(whole), std::move(members));
}

}  // namespace dear::transport
