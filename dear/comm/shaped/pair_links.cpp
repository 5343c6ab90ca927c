#include "dear/comm/shaped/pair_links.h"

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shaped/modelled_network.h"

namespace dear {
namespace channels {
namespace {

SteadyTime after(SteadyTime from, double seconds) {
  return Deadline::after(std::chrono::duration<double>(seconds), from).at();
}

class PairLinks final : public Channels {
  // A transfer, and the two of `inner_` that carry it. It stays in place until both are done.
  struct Flight {
    Transfer* outer = nullptr;
    Transfer content{};
    Transfer stamp{};      // carries `arrival`
    SteadyTime arrival{};  // at the receiver
    SteadyTime due{};      // when `outer` is done
    bool landed = false;   // the real messages are through
  };

  template <typename Function>
  auto guarded(const Function& function) {
    return error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

 public:
  PairLinks(std::unique_ptr<Channels> inner, const PairCluster& cluster, std::function<SteadyTime()> now)
      : cluster_(cluster), now_(std::move(now)), free_at_(cluster.devices.size()), inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, over modelled links: {}", inner_->description(), modelled_network());
  }
  [[nodiscard]] std::string modelled_network() const override { return backends::describe(cluster_); }

  void start(Transfer& transfer) override {
    guarded([&] {
      transfer.done = false;
      Flight& flight = flights_.emplace_back(Flight{.outer = &transfer, .content = transfer});
      if (transfer.direction == Transfer::Direction::send) {
        SteadyTime& free_at = free_at_[index_of(transfer.peer)];
        free_at =
            after(std::max(free_at, now_()),
                  cluster_.transfer_seconds(rank(), transfer.peer, static_cast<double>(transfer.bytes)));
        flight.due = free_at;
        flight.arrival = after(free_at, cluster_.latency_seconds[index_of(rank())][index_of(transfer.peer)]);
      }
      flight.stamp = {.direction = transfer.direction,
                      .peer = transfer.peer,
                      .tag = transfer.tag,
                      .data = reinterpret_cast<std::byte*>(&flight.arrival),
                      .bytes = sizeof flight.arrival};
      inner_->start(flight.stamp);
      inner_->start(flight.content);
    });
  }

  bool progress() override {
    return guarded([&] {
      inner_->progress();
      return settle();
    });
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    guarded([&] {
      while (!settle() && now_() < until.at()) {
        const Flight* const next = next_landed();
        if (next != nullptr && next->due > deadline.at() && all_landed()) refuse(*next, what);
        inner_->wait_until(what, deadline, next == nullptr ? until : earlier(until, Deadline(next->due)));
      }
    });
  }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  // Whether a transfer became done.
  bool settle() {
    const SteadyTime now = now_();
    bool any = false;
    for (auto at = flights_.begin(); at != flights_.end();) {
      Flight& flight = *at;
      if (!flight.landed && flight.stamp.done && flight.content.done) {
        flight.landed = true;
        if (flight.content.direction == Transfer::Direction::receive) flight.due = flight.arrival;
      }
      if (!flight.landed || flight.due > now) {
        ++at;
        continue;
      }
      flight.outer->done = any = true;
      at = flights_.erase(at);
    }
    return any;
  }

  // The flight that is due first of those that only the model holds back; null where there is none.
  [[nodiscard]] const Flight* next_landed() const {
    const Flight* next = nullptr;
    for (const Flight& flight : flights_)
      if (flight.landed && (next == nullptr || flight.due < next->due)) next = &flight;
    return next;
  }
  [[nodiscard]] bool all_landed() const {
    return std::all_of(flights_.begin(), flights_.end(), [](const Flight& flight) { return flight.landed; });
  }

  [[noreturn]] void refuse(const Flight& flight, const Describe& what) const {
    const bool sends = flight.content.direction == Transfer::Direction::send;
    throw TimeoutError(fmt::format(
        "rank {} gave up its {}: the message of {} {} rank {} takes {} more on its link of the modelled "
        "network {}, longer than the timeout leaves: raise the timeout or model a faster network",
        rank(), what(), format_bytes(flight.content.bytes), sends ? "to" : "from", flight.content.peer,
        format_seconds(std::chrono::duration<double>(flight.due - now_()).count()), cluster_.name));
  }

  const PairCluster cluster_;
  const std::function<SteadyTime()> now_;
  std::vector<SteadyTime> free_at_;  // by peer: when the link to it has carried all before
  std::list<Flight> flights_;
  os::FirstError error_;
  const std::unique_ptr<Channels> inner_;  // last: it is gone before what it reads and writes
};

}  // namespace

std::unique_ptr<Channels> make_pair_links(std::unique_ptr<Channels> inner, const PairCluster& cluster,
                                          std::function<SteadyTime()> now) {
  require_ranks(cluster, inner->size());
  return std::make_unique<PairLinks>(std::move(inner), cluster, std::move(now));
}

}  // namespace channels

namespace backends {
namespace {

// Of all pairs, in a matrix of them.
std::pair<double, double> least_and_most(const PairCluster::Matrix& matrix) {
  std::pair<double, double> range{0, 0};
  bool first = true;
  for (std::size_t from = 0; from < matrix.size(); ++from) {
    for (std::size_t to = 0; to < matrix.size(); ++to) {
      if (from == to) continue;
      const double value = matrix[from][to];
      range = first ? std::pair{value, value}
                    : std::pair{std::min(range.first, value), std::max(range.second, value)};
      first = false;
    }
  }
  return range;
}

// A program has a few segments on their way to a peer and waits for the first before it sends another. A link
// stays busy if these are as much as it holds: its bandwidth times its latency.
std::int64_t segment_bytes_of(const PairCluster& cluster) {
  constexpr std::int64_t kLeast = 64 * kKiB, kMost = 16 * kMiB;
  constexpr double kOnTheirWay = 4;
  double held = 0;
  for (std::size_t from = 0; from < cluster.devices.size(); ++from)
    for (std::size_t to = 0; to < cluster.devices.size(); ++to)
      held = std::max(held, cluster.bytes_per_second[from][to] * cluster.latency_seconds[from][to]);
  return static_cast<std::int64_t>(
      std::clamp(held / kOnTheirWay, static_cast<double>(kLeast), static_cast<double>(kMost)));
}

}  // namespace

std::unique_ptr<Backend> make_shaped(std::unique_ptr<channels::Channels> inner, const PairCluster& cluster,
                                     const PairShapedOptions& options) {
  auto links = channels::make_pair_links(std::move(inner), cluster, options.now);
  const Link slowest{.alpha_seconds = least_and_most(cluster.latency_seconds).second,
                     .beta_seconds_per_byte = 1 / least_and_most(cluster.bytes_per_second).first};
  return message_programs::make_program_backend(
      std::move(links),
      {.reproducible = options.reproducible,
       .choose =
           [slowest, segment = segment_bytes_of(cluster)](const message_programs::CollectiveCall& call) {
             message_programs::AlgorithmChoice choice = message_programs::choose_by_model(call, slowest);
             choice.segment_bytes = segment;
             return choice;
           },
       .link = slowest});
}

std::string describe(const PairCluster& cluster) {
  const auto [slowest, fastest] = least_and_most(cluster.bytes_per_second);
  const auto [near, far] = least_and_most(cluster.latency_seconds);
  return fmt::format("{} ({}, {:.4g} to {:.4g} Gbit/s, latencies {} to {})", cluster.name,
                     counted(cluster.devices.size(), "device"), 8e-9 * slowest, 8e-9 * fastest,
                     format_seconds(near), format_seconds(far));
}

}  // namespace backends
}  // namespace dear
