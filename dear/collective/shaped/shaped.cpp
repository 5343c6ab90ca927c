#include "dear/collective/shaped/shaped.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <sys/prctl.h>
#include <time.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/cost/ring.h"

namespace dear::collective {
namespace {

std::string describe_network(const Network& network) {
  return fmt::format("{} (alpha {}, {:.4g} Gbit/s)", network.name, format_seconds(network.link.alpha_seconds),
                     8e-9 / network.link.beta_seconds_per_byte);
}

double modelled_seconds(const Request& request, const Link& link, int ranks) {
  const std::int64_t bytes = request.view.count * size_of(request.view.dtype);
  switch (request.operation) {
    case Operation::barrier:
      return cost::ring_barrier_seconds(link, ranks);
    case Operation::reduce_scatter:
      return cost::ring_reduce_scatter_seconds(link, ranks, bytes);
    case Operation::all_gather:
      return cost::ring_all_gather_seconds(link, ranks, bytes);
    case Operation::all_reduce:
      return cost::ring_all_reduce_seconds(link, ranks, bytes);
    case Operation::broadcast:
      return cost::pipelined_broadcast_seconds(link, ranks, bytes);
    case Operation::all_to_all:
      return cost::pairwise_all_to_all_seconds(link, ranks, bytes);
  }
  return 0;
}

void sleep_until(SteadyTime time) {
  const auto since_epoch = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
  const timespec at{.tv_sec = seconds.count(),
                    .tv_nsec = std::chrono::nanoseconds(since_epoch - seconds).count()};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

// The kernel wakes a sleeper up to 50 us late to save power, as much as a whole message of a modelled link
// takes.
void sleep_precisely_on_this_thread() {
  static thread_local const int set = prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  static_cast<void>(set);
}

class Shaped final : public Backend {
 public:
  Shaped(std::unique_ptr<Backend> inner, Network network)
      : inner_(std::move(inner)), network_(std::move(network)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, over a modelled network: {}", inner_->description(), describe_network(network_));
  }
  [[nodiscard]] std::string modelled_network() const override { return describe_network(network_); }

  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return inner_->allocate(bytes, deadline);
  }

  // The link carries one collective at a time. All ranks know the same begin, so all come to the same end.
  Timing run(const Request& request, Deadline deadline) override {
    if (refused_) {
      std::rethrow_exception(refused_);
    }
    const Timing real = inner_->run(request, deadline);
    const SteadyTime begin = std::max(free_at_, real.begin);
    const std::chrono::duration<double> cost(modelled_seconds(request, network_.link, size()));
    if (cost > deadline.at() - begin) {
      refuse(request, cost.count());
    }
    free_at_ = begin + std::chrono::duration_cast<SteadyClock::duration>(cost);
    sleep_precisely_on_this_thread();
    sleep_until(free_at_);
    return {.begin = begin, .end = std::max(free_at_, real.end)};
  }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  [[noreturn]] void refuse(const Request& request, double seconds) {
    const std::string message = fmt::format(
        "{} takes {} on the modelled network {}, longer than the timeout leaves: raise the timeout or "
        "model a faster network",
        describe(request), format_seconds(seconds), describe_network(network_));
    inner_->abort(message);
    refused_ = std::make_exception_ptr(TimeoutError(message));
    std::rethrow_exception(refused_);
  }

  std::unique_ptr<Backend> inner_;
  Network network_;
  std::exception_ptr refused_;
  SteadyTime free_at_{};  // when the modelled link has carried all before
};

}  // namespace

std::unique_ptr<Backend> make_shaped(std::unique_ptr<Backend> inner, const Network& network) {
  return std::make_unique<Shaped>(std::move(inner), network);
}

}  // namespace dear::collective
