#include "dear/comm/shaped/shaped.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cost/all_to_all.h"
#include "dear/platform/cost/ring.h"

namespace dear::backends {
namespace {

std::string describe_network(const Network& network) {
  return fmt::format("{} (alpha {}, {:.4g} Gbit/s)", network.name, format_seconds(network.link.alpha_seconds),
                     8e-9 / network.link.beta_seconds_per_byte);
}

double modelled_seconds(const Request& request, const Link& link, int ranks) {
  const std::int64_t bytes = request.view.count * size_of(request.view.dtype);
  switch (request.collective) {
    case Collective::barrier:
      return cost::ring_barrier_seconds(link, ranks);
    case Collective::reduce_scatter:
      return cost::ring_reduce_scatter_seconds(link, ranks, bytes);
    case Collective::all_gather:
      return cost::ring_all_gather_seconds(link, ranks, bytes);
    case Collective::all_reduce:
      return cost::ring_all_reduce_seconds(link, ranks, bytes);
    case Collective::broadcast:
    case Collective::reduce:  // the same messages the other way
      return cost::pipelined_broadcast_seconds(link, ranks, bytes);
    case Collective::all_to_all_v:  // its time depends on more than the request
      break;
    case Collective::all_to_all:
      return cost::pairwise_all_to_all_seconds(link, ranks, bytes);
  }
  return 0;
}

// The link of one rank, which all its groups share.
class SharedLink {
 public:
  // The moment from which the link carries what was asked for at `asked`, and takes `seconds`.
  SteadyTime carry(SteadyTime asked, std::chrono::duration<double> seconds) {
    const std::lock_guard lock(mutex_);
    const SteadyTime from = std::max(free_at_, asked);
    free_at_ = from + std::chrono::duration_cast<SteadyClock::duration>(seconds);
    return from;
  }

 private:
  std::mutex mutex_;
  SteadyTime free_at_{};  // when all before has been carried
};

class Shaped final : public Backend {
 public:
  Shaped(std::unique_ptr<Backend> inner, Network network, std::shared_ptr<SharedLink> link)
      : inner_(std::move(inner)), network_(std::move(network)), link_(std::move(link)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, over a modelled network: {}", inner_->description(), describe_network(network_));
  }
  [[nodiscard]] std::string modelled_network() const override { return describe_network(network_); }

  [[nodiscard]] bool takes_any_buffer() const override { return inner_->takes_any_buffer(); }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return inner_->allocate(bytes, deadline);
  }

  // The link carries one collective at a time: a collective begins when all ranks have asked for it and the
  // link is free. All ranks know both moments, so all compute the same end, whenever their threads ran; where
  // two groups share the link and ask at about the same time, its ranks may serve them in different orders.
  Timing run(const Request& request, Deadline deadline) override {
    if (refused_) {
      std::rethrow_exception(refused_);
    }
    const std::chrono::duration<double> cost(
        request.collective == Collective::all_to_all_v
            ? cost::all_to_all_v_seconds(network_.link, gather_pair_bytes(request, deadline))
            : modelled_seconds(request, network_.link, size()));
    if (cost > deadline.remaining()) {
      refuse(request, cost.count());
    }
    const Timing real = inner_->run(request, deadline);
    const SteadyTime carried_from = link_->carry(real.asked, cost);
    const SteadyTime carried = carried_from + std::chrono::duration_cast<SteadyClock::duration>(cost);
    // A host that is late has the result only at `real.end`. This delays neither the link nor later
    // collectives on it, but none of these is reported to begin earlier.
    const SteadyTime begin = std::max(carried_from, last_end_);
    last_end_ = std::max({carried, real.end, last_end_});
    return {.begin = begin, .end = last_end_, .asked = real.asked};
  }

  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline deadline) override {
    auto part = inner_->split(subgroup, deadline);
    return part ? std::make_unique<Shaped>(std::move(part), network_, link_) : nullptr;
  }
  [[nodiscard]] int name() const override { return inner_->name(); }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  // Each rank knows what it sends itself; the time, which is the same on all, depends on what others send.
  algorithm::PairBytes gather_pair_bytes(const Request& request, Deadline deadline) {
    const auto ranks = static_cast<std::size_t>(size());
    const comm::ChunkPlaces places = places_of(request, size());
    std::vector<std::int64_t> mine(ranks);
    for (int to = 0; to < size(); ++to) {
      for (const std::int64_t rows : places.counts_of(request.rows.sent, to))
        mine[static_cast<std::size_t>(to)] +=
            std::clamp<std::int64_t>(rows, 0, places.room) * places.row_bytes;
    }
    const std::size_t bytes = ranks * sizeof(std::int64_t);
    const std::int64_t block = os::whole_cache_lines(static_cast<std::int64_t>(bytes));
    if (!told_.region()) told_ = inner_->allocate(block * size(), deadline);
    std::memcpy(told_.data() + block * rank(), mine.data(), bytes);
    inner_->run({.collective = Collective::all_gather,
                 .view = {.buffer = told_, .count = block * size(), .dtype = DType::u8},
                 .label = request.label,
                 .timed = false},
                deadline);
    algorithm::PairBytes pairs{.ranks = size(), .chunks = request.rows.chunks, .bytes = {}};
    pairs.bytes.resize(ranks * ranks);
    for (int from = 0; from < size(); ++from) {
      std::memcpy(pairs.bytes.data() + static_cast<std::size_t>(from) * ranks, told_.data() + block * from,
                  bytes);
    }
    return pairs;
  }

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
  Buffer told_;  // the bytes that ranks send each other in an all-to-all-v, by sender
  std::exception_ptr refused_;
  std::shared_ptr<SharedLink> link_;
  SteadyTime last_end_{};  // of the collective before, as reported
};

}  // namespace

std::unique_ptr<Backend> make_shaped(std::unique_ptr<Backend> inner, const Network& network) {
  return std::make_unique<Shaped>(std::move(inner), network, std::make_shared<SharedLink>());
}

}  // namespace dear::backends
