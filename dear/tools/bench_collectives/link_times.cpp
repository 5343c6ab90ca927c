#include "dear/tools/bench_collectives/link_times.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/exchange.h"
#include "dear/platform/cost/fit.h"

namespace dear::bench_collectives {
namespace {

constexpr std::size_t kLeastSizes = 3;

// Bytes that tell of their place, sender and length.
std::byte pattern(std::int64_t at, int from, std::int64_t bytes) {
  return static_cast<std::byte>((at * 31 + from * 17 + bytes) % 251);
}

class LinkTimer {
 public:
  LinkTimer(int self, int from, int to, const PairWire& wire, const LinkTimesOptions& options)
      : sends_(self == from), from_(from), to_(to), wire_(wire), options_(options) {}

  PairTimes run() {
    PairTimes times{.from = from_, .to = to_, .trips = {}};
    std::vector<std::int64_t> sizes = options_.sizes;
    if (sizes.empty() || sizes.front() > 1) sizes.insert(sizes.begin(), 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      verify(sizes[i]);
      times.trips.push_back({.bytes = sizes[i], .seconds = usual_seconds(sizes[i])});
      if (i + 1 < sizes.size() && !go_on(is_short(times.trips, sizes[i + 1]))) break;
    }
    if (!sends_) times.trips.clear();
    return times;
  }

 private:
  // Whether the next size takes less than the longest, going by the last one.
  [[nodiscard]] bool is_short(const std::vector<RoundTrip>& trips, std::int64_t next) const {
    const RoundTrip& last = trips.back();
    return trips.size() < kLeastSizes ||
           last.seconds * static_cast<double>(next) / static_cast<double>(last.bytes) <
               options_.longest.count();
  }

  double usual_seconds(std::int64_t bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < options_.repeat; ++i) {
      const SteadyTime start = options_.now();
      round_trip(bytes);
      seconds.push_back(std::chrono::duration<double>(options_.now() - start).count());
    }
    return quartiles_of(std::move(seconds)).first;
  }

  void round_trip(std::int64_t bytes) {
    wire_.carry(from_, to_, bytes);
    wire_.carry(to_, from_, 1);
  }

  // The first messages of a size also touch memory and open connections, so they are not timed.
  void verify(std::int64_t bytes) {
    for (std::int64_t at = 0; sends_ && at < bytes; ++at) byte(at) = pattern(at, from_, bytes);
    wire_.carry(from_, to_, bytes);
    for (std::int64_t at = 0; !sends_ && at < bytes; ++at) {
      if (byte(at) != pattern(at, from_, bytes))
        throw TransportError(fmt::format(
            "byte {} of a message of {} from rank {} to rank {} arrived wrong: what carries it is broken", at,
            format_bytes(bytes), from_, to_));
    }
    wire_.carry(to_, from_, 1);
  }

  // The sender decides for both.
  bool go_on(bool wanted) {
    if (sends_) byte(0) = std::byte{wanted};
    wire_.carry(from_, to_, 1);
    return byte(0) != std::byte{0};
  }

  std::byte& byte(std::int64_t at) { return wire_.memory[static_cast<std::size_t>(at)]; }

  const bool sends_;
  const int from_, to_;
  const PairWire& wire_;
  const LinkTimesOptions& options_;
};

// Both directions of two ranks; this rank's is measured by it.
PairTimes time_both(const Group& pair, const std::array<int, 2>& ranks, const LinkTimesOptions& options) {
  const std::int64_t largest = std::max<std::int64_t>(1, options.sizes.empty() ? 1 : options.sizes.back());
  const Buffer buffer = pair.allocate(largest);
  const PairWire wire{.memory = {buffer.data(), static_cast<std::size_t>(largest)},
                      .carry = [&](int from, int /*to*/, std::int64_t bytes) {
                        pair.perform({.collective = Collective::broadcast,
                                      .view = {.buffer = buffer, .count = bytes, .dtype = DType::u8},
                                      .root = from});
                      }};
  PairTimes mine;
  for (int from = 0; from < 2; ++from) {
    PairTimes times = time_link(pair.rank(), from, 1 - from, wire, options);
    if (pair.rank() == from) mine = std::move(times);
  }
  mine.from = ranks[index_of(mine.from)];
  mine.to = ranks[index_of(mine.to)];
  return mine;
}

// What ranks tell each other: for each size of each of their pairs one line.
struct Told {
  int from = 0, to = 0;
  RoundTrip trip;
};

std::vector<PairTimes> tell_all(const Group& group, const std::vector<PairTimes>& mine) {
  std::vector<Told> lines;
  for (const PairTimes& times : mine)
    for (const RoundTrip& trip : times.trips) lines.push_back({times.from, times.to, trip});
  std::size_t most = 0;
  for (const std::size_t count : comm::all_gather_values(group, lines.size())) most = std::max(most, count);
  lines.resize(most);  // those that are added are from a rank to itself
  const std::vector<std::byte> bytes = comm::all_gather_bytes(group, std::as_bytes(std::span(lines)));
  std::vector<Told> all(bytes.size() / sizeof(Told));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  std::vector<PairTimes> times;
  for (const Told& line : all) {
    if (line.from == line.to) continue;
    if (times.empty() || times.back().from != line.from || times.back().to != line.to)
      times.push_back({.from = line.from, .to = line.to, .trips = {}});
    times.back().trips.push_back(line.trip);
  }
  return times;
}

const PairTimes& times_of(const std::vector<PairTimes>& all, std::size_t from, std::size_t to) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const PairTimes& one) {
    return index_of(one.from) == from && index_of(one.to) == to;
  });
  if (found == all.end() || found->trips.empty())
    throw Error(fmt::format("the link from rank {} to rank {} was not measured", from, to));
  return *found;
}

}  // namespace

PairTimes time_link(int self, int from, int to, const PairWire& wire, const LinkTimesOptions& options) {
  return LinkTimer(self, from, to, wire, options).run();
}

std::vector<PairTimes> time_links(const Group& group, const LinkTimesOptions& options,
                                  const std::function<void(int one, int other)>& before) {
  std::vector<PairTimes> mine;
  for (int one = 0; one < group.size(); ++one) {
    for (int other = one + 1; other < group.size(); ++other) {
      if (before) before(one, other);
      const bool takes_part = group.rank() == one || group.rank() == other;
      const std::optional<Group> pair = group.split(takes_part ? 0 : -1, group.rank());
      if (pair) mine.push_back(time_both(*pair, {one, other}, options));
    }
  }
  return tell_all(group, mine);
}

LinkOfPair fit_link_of_pair(const PairTimes& times) {
  // Sizes that take hardly longer than a byte tell of start-up, caches and noise.
  constexpr double kOfBytes = 2;
  std::vector<cost::Sample> samples;
  for (const RoundTrip& trip : times.trips) {
    const bool at_an_end = &trip == &times.trips.front() || &trip == &times.trips.back();
    if (at_an_end || trip.seconds >= kOfBytes * times.trips.front().seconds)
      samples.push_back({.messages = 1, .bytes = static_cast<double>(trip.bytes), .seconds = trip.seconds});
  }
  const cost::LinkFit fit = cost::fit_link(samples);
  if (!(fit.link.beta_seconds_per_byte > 0))
    throw Error(
        fmt::format("larger messages from rank {} to rank {} took no longer than small ones: give larger "
                    "--sizes, or a larger --repeat",
                    times.from, times.to));
  return {.bytes_per_second = 1 / fit.link.beta_seconds_per_byte, .worst_residual = fit.worst_residual};
}

PairCluster cluster_of(std::vector<PairDevice> devices, std::string name,
                       const std::vector<PairTimes>& times) {
  const std::size_t ranks = devices.size();
  const PairCluster::Matrix nothing(ranks, std::vector<double>(ranks));
  PairCluster cluster{.name = std::move(name),
                      .devices = std::move(devices),
                      .bytes_per_second = nothing,
                      .latency_seconds = nothing};
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const PairTimes& there = times_of(times, from, to);
      cluster.bytes_per_second[from][to] = fit_link_of_pair(there).bytes_per_second;
      const double both_ways = there.trips.front().seconds + times_of(times, to, from).trips.front().seconds;
      cluster.latency_seconds[from][to] = both_ways / 4;
    }
  }
  validate(cluster);
  return cluster;
}

}  // namespace dear::bench_collectives
