#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/group.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::bench_collectives {

struct LinkTimesOptions {
  std::vector<std::int64_t> sizes{};  // of messages, ascending, each above 0
  int repeat = 9;
  // Sizes of which a round trip takes longer, going by the size before, are left out once there are three.
  std::chrono::duration<double> longest = std::chrono::milliseconds(200);
  std::function<SteadyTime()> now = SteadyClock::now;  // another one is for tests
};

// A message that went there, and one of a byte that came back: the first quartile of the seconds of both, for
// whatever else goes on at a host or on a wire only adds to them.
struct RoundTrip {
  std::int64_t bytes = 0;
  double seconds = 0;
  friend bool operator==(const RoundTrip&, const RoundTrip&) = default;
};
// PairTimes has the times of an ordered pair of ranks, by size.
struct PairTimes {
  int from = 0, to = 0;
  std::vector<RoundTrip> trips;
  friend bool operator==(const PairTimes&, const PairTimes&) = default;
};

// A PairWire carries the messages of two ranks: the first `bytes` of the memory of rank `from` to that of
// rank `to`. Both ranks call it, and it returns on `to` when they are there.
struct PairWire {
  std::span<std::byte> memory;  // room for the largest size
  std::function<void(int from, int to, std::int64_t bytes)> carry;
};

// Measures messages from rank `from` to rank `to`: of a byte first, then of each size. Both call it, and
// `self` is one of them. The times are those of `from`, and none on `to`. TransportError where a message
// arrives with other bytes.
PairTimes time_link(int self, int from, int to, const PairWire& wire, const LinkTimesOptions& options);

// Measures all ordered pairs of the group, one after another, while the other ranks wait: so nothing else
// travels. Collective; the result is the same on every rank, in the order of `from` and `to`. Each pair is a
// part of the group meanwhile. `before` is called ahead of each two ranks.
std::vector<PairTimes> time_links(const Group& group, const LinkTimesOptions& options,
                                  const std::function<void(int one, int other)>& before = {});

struct LinkOfPair {
  double bytes_per_second = 0;
  double worst_residual = 0;  // of the times that were fitted, without its sign
};
// The bandwidth in one direction: bytes over what they add to a round trip, by a fit (platform/cost/fit.h) to
// the smallest size and all that take twice as long. Error where larger messages do not take longer.
LinkOfPair fit_link_of_pair(const PairTimes& times);

// The cluster of these devices with the links that were measured: times of all ordered pairs. Where two
// clocks do not agree, a round trip does not say how long each of its ways took: both directions get half of
// it as their latency, for a message of a byte.
PairCluster cluster_of(std::vector<PairDevice> devices, std::string name,
                       const std::vector<PairTimes>& times);

}  // namespace dear::bench_collectives
