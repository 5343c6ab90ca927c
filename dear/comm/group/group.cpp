#include "dear/comm/group/group.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/group_lane.h"

namespace dear {

bool Pending::done() const { return !ticket_ || ticket_->done.load(std::memory_order_acquire); }

Timing Pending::wait() const { return ticket_ ? wait_for(*ticket_) : Timing{}; }

Group::Group(std::unique_ptr<Backend> backend, Options options) {
  const double seconds = options.timeout.count();
  constexpr double kYear = 365.0 * 24 * 3600;
  if (!(seconds > 0 && seconds <= kYear)) {
    throw ConfigError(fmt::format("a timeout of {} s cannot be: give one above 0 and up to a year", seconds));
  }
  lane_ = std::make_shared<Lane>(std::move(backend), options);
}

int Group::rank() const { return lane_->rank; }
int Group::size() const { return lane_->size; }
std::string Group::description() const { return lane_->backend().description(); }
std::string Group::modelled_network() const { return lane_->backend().modelled_network(); }
bool Group::shares_memory() const { return lane_->backend().shares_memory(); }
bool Group::takes_shares() const { return size() == 1 || lane_->backend().takes_shares(); }
std::chrono::duration<double> Group::timeout() const { return lane_->options.timeout; }

Buffer Group::allocate(std::int64_t bytes) const { return allocate(false, bytes); }
Buffer Group::allocate_shared(std::int64_t bytes) const {
  if (!shares_memory()) lane_->backend().refuse_to_share();
  return allocate(true, bytes);
}

Buffer Group::allocate(bool shared, std::int64_t bytes) const {
  if (bytes < 0) {
    throw ConfigError(fmt::format("cannot allocate a buffer of {} bytes: the size is negative", bytes));
  }
  lane_->forbid_here();
  const auto buffer = std::make_shared<Buffer>();
  const auto ticket = lane_->push(
      [shared, bytes, buffer](Backend& backend, Deadline deadline) {
        *buffer = allocate_recorded(backend, shared, bytes, deadline);
        return Timing{};
      },
      {});
  wait_for(*ticket);
  return *buffer;
}

Pending Group::issue(const Request& request, Continuation then) const {
  validate(request, size());
  Request timed = request;
  timed.asked = SteadyClock::now();
  return Pending(lane_->push(
      [timed](Backend& backend, Deadline deadline) { return run_with_own_shard(backend, timed, deadline); },
      std::move(then)));
}

Pending Group::issue(const Request& request, Next next, Continuation then) const {
  validate(request, size());
  Request first = request;
  first.asked = SteadyClock::now();
  const auto all = [first, next = std::move(next), ranks = size(), timeout = timeout()](Backend& backend,
                                                                                        Deadline deadline) {
    Timing timing = run_with_own_shard(backend, first, deadline);
    while (std::optional<Request> request = next()) {
      validate(*request, ranks);
      request->asked = SteadyClock::now();
      timing.end = run_with_own_shard(backend, *request, Deadline::after(timeout)).end;
    }
    return timing;
  };
  return Pending(lane_->push(all, std::move(then)));
}

void Group::perform(Request request) const {
  validate(request, size());
  lane_->forbid_here();
  request.asked = recent_time();
  request.waiting = Waiting::yielding;
  request.timed = false;
  if (lane_->perform_here(request)) return;
  request.waiting = Waiting::asleep;
  request.timed = true;
  issue(request).wait();
}

Pending Group::reduce_scatter(const View& view, Reduction reduction) const {
  return issue({.collective = Collective::reduce_scatter, .view = view, .reduction = reduction});
}
Pending Group::all_gather(const View& view, const ShardShares* shares) const {
  return issue({.collective = Collective::all_gather, .view = view, .shares = shares});
}
Pending Group::all_reduce(const View& view, Reduction reduction) const {
  return issue({.collective = Collective::all_reduce, .view = view, .reduction = reduction});
}
Pending Group::broadcast(const View& view, int root) const {
  return issue({.collective = Collective::broadcast, .view = view, .root = root});
}
Pending Group::reduce(const View& view, Reduction reduction, int root) const {
  return issue({.collective = Collective::reduce, .view = view, .reduction = reduction, .root = root});
}
Pending Group::all_to_all(const View& view, const View& output) const {
  return issue({.collective = Collective::all_to_all, .view = view, .output = output});
}
Pending Group::all_to_all_v(const View& view, const View& output, const ChunkRows& rows) const {
  return issue({.collective = Collective::all_to_all_v, .view = view, .output = output, .rows = rows});
}
Pending Group::barrier() const { return issue({.collective = Collective::barrier}); }

bool Group::claim() const { return !lane_->claimed.exchange(true); }

void Group::watch(const std::shared_ptr<liveness::Liveness>& liveness) const {
  if (liveness) lane_->watch(liveness);
}

void Group::abort(const std::string& reason) const noexcept { lane_->abort(reason); }

}  // namespace dear
