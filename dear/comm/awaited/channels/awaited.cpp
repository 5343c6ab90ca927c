#include "dear/comm/awaited/channels/awaited.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/awaited/channels/failure_detector.h"
#include "dear/comm/awaited/channels/transfer_queue.h"

namespace dear::channels {
namespace {

// How long a rank that ends waits for peers to hear of it. Those that are alive take milliseconds, on a busy
// host more.
constexpr std::chrono::duration<double> kFarewell = std::chrono::seconds(1);

class AwaitedChannels final : public Channels {
 public:
  explicit AwaitedChannels(std::unique_ptr<PointToPoint> point_to_point)
      : point_to_point_(std::move(point_to_point)),
        failure_detector_(
            *point_to_point_,
            [this](int peer, FailureDetector::Kind kind, const std::string& text) { hear(peer, kind, text); },
            [this] { return std::ranges::any_of(lines(), &TransferQueue::busy); }) {}
  ~AwaitedChannels() override {
    if (!completions_.failure()) failure_detector_.leave(Deadline::after(kFarewell));
    quiesce();
  }

  [[nodiscard]] int rank() const override { return point_to_point_->rank(); }
  [[nodiscard]] int size() const override { return point_to_point_->size(); }
  [[nodiscard]] std::string description() const override { return point_to_point_->description(); }

  void start(Transfer& transfer) override {
    throw_if_failed();
    try {
      line_of(transfer).start(transfer);
    } catch (const Error&) {
      fail(std::current_exception());
    } catch (const std::exception& error) {
      broken(transfer.peer, error.what());
    }
    throw_if_failed();
  }

  bool progress() override {
    throw_if_failed();
    return completions_.collect();
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    throw_if_failed();
    if (completions_.wait(earlier(deadline, until))) return;
    throw_if_failed();
    if (!deadline.expired()) return;
    fail(std::make_exception_ptr(TimeoutError(say_late(what()))));
    throw_if_failed();
  }

  void abort(const std::string& reason) noexcept override {
    try {
      fail(std::make_exception_ptr(TransportError(reason)));
      quiesce();
    } catch (const std::exception&) {  // no memory for a message
    }
  }

 private:
  TransferQueue& line_of(const Transfer& transfer) {
    const int peer = transfer.peer;
    if (has_left(peer)) throw TransportError(say_left(peer));
    const std::lock_guard lock(mutex_);
    if (closed_) throw TransportError(fmt::format("rank {} has closed its channels", rank()));
    std::unique_ptr<TransferQueue>& line = lines_[{peer, transfer.direction, transfer.tag}];
    if (!line) {
      line = std::make_unique<TransferQueue>(*point_to_point_, peer, transfer.direction, completions_,
                                             [this, peer](const std::string& why) { broken(peer, why); });
    }
    return *line;
  }

  // On a thread of failure_detector_.
  void hear(int peer, FailureDetector::Kind kind, const std::string& text) {
    switch (kind) {
      case FailureDetector::Kind::failed:
        return completions_.fail(std::make_exception_ptr(TransportError(text)));
      case FailureDetector::Kind::lost:
        return completions_.fail(std::make_exception_ptr(TransportError(say_lost(peer, text))));
      case FailureDetector::Kind::left:
        break;
    }
    {
      const std::lock_guard lock(left_mutex_);
      left_.insert(peer);
    }
    for (TransferQueue* line : lines()) {
      if (line->peer() == peer) line->expect_no_more();
    }
  }

  // What the messaging library says first may be a consequence: the peer's own last word comes before it.
  void broken(int peer, const std::string& why) {
    failure_detector_.wait_for(peer, Deadline::after(kFarewell));
    fail(std::make_exception_ptr(TransportError(has_left(peer) ? say_left(peer) : say_lost(peer, why))));
  }

  bool has_left(int peer) {
    const std::lock_guard lock(left_mutex_);
    return left_.count(peer) != 0;
  }

  // They stay until this object goes.
  std::vector<TransferQueue*> lines() {
    const std::lock_guard lock(mutex_);
    std::vector<TransferQueue*> all;
    for (const auto& [key, line] : lines_) all.push_back(line.get());
    return all;
  }

  void fail(std::exception_ptr error) { completions_.fail(std::move(error)); }

  void throw_if_failed() {
    if (const std::exception_ptr failure = completions_.failure()) {
      quiesce();
      std::rethrow_exception(failure);
    }
  }

  // Nothing touches a transfer afterwards, so its owner may let go of it.
  void quiesce() noexcept {
    const std::lock_guard once(quiescing_);
    if (quiet_) return;
    quiet_ = true;
    if (const std::exception_ptr failure = completions_.failure()) tell_peers(failure);
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    for (TransferQueue* line : lines()) line->stop();
  }

  void tell_peers(const std::exception_ptr& failure) noexcept {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      failure_detector_.say_failed(error.what(), Deadline::after(kFarewell));
    }
  }

  [[nodiscard]] std::string say_left(int peer) const {
    return fmt::format(
        "rank {} left before rank {} was done with it: every rank must issue the same collectives", peer,
        rank());
  }
  [[nodiscard]] std::string say_lost(int peer, const std::string& why) const {
    return fmt::format("rank {} lost its connection to rank {} ({}): see whether that rank ended, and why",
                       rank(), peer, first_line(why));
  }
  [[nodiscard]] std::string say_late(const std::string& what) {
    std::set<int> senders;
    std::set<int> receivers;
    for (const TransferQueue* line : lines()) {
      if (!line->busy()) continue;
      (line->direction() == Transfer::Direction::receive ? senders : receivers).insert(line->peer());
    }
    const std::string start = fmt::format("rank {} gave up its {}: ", rank(), what);
    // Who is waited for may itself wait for another.
    const std::vector<int> silent = failure_detector_.silent_ranks(Deadline::after(kFarewell));
    if (!silent.empty()) {
      return start + fmt::format(
                         "no sign of life from rank {} (if it is stopped, let it continue; see whether its "
                         "host can be reached)",
                         fmt::join(silent, ", "));
    }
    const std::vector<int> idle = failure_detector_.idle_ranks();
    const std::set<int> late = !idle.empty()     ? std::set<int>(idle.begin(), idle.end())
                               : senders.empty() ? receivers
                                                 : senders;
    return start + fmt::format(
                       "nothing came from rank {} in time, which is alive (if it is slow, give a longer "
                       "timeout)",
                       fmt::join(late, ", "));
  }
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  const std::unique_ptr<PointToPoint> point_to_point_;
  CompletionQueue completions_;

  std::mutex mutex_;
  std::map<std::tuple<int, Transfer::Direction, Tag>, std::unique_ptr<TransferQueue>> lines_;
  bool closed_ = false;

  std::mutex left_mutex_;
  std::set<int> left_;

  std::mutex quiescing_;
  bool quiet_ = false;

  FailureDetector failure_detector_;  // last: its threads use all of the above
};

}  // namespace

std::unique_ptr<Channels> make_awaited(std::unique_ptr<PointToPoint> point_to_point) {
  return std::make_unique<AwaitedChannels>(std::move(point_to_point));
}

}  // namespace dear::channels
