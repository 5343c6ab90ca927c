#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/channels/channels.h"
#include "dear/comm/group/backend.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::channels {

// Channels over modelled links: each ordered pair of ranks has the link of `cluster` between the devices of
// these numbers, and nothing else to share. A link carries one message at a time, in the order in which sends
// were started, whatever their tags: a message of m bytes takes it for m / bandwidth. Then the send is done,
// and a latency later so is the receive; neither before the real message is through. So a message travels
// while its receiver computes, and a receive that is started late finds it. What is left of the time after
// the real work is slept.
//
// Ranks tell each other moments on their clock, so all of them have to be on one host. In front of each
// message goes one of 8 bytes, which takes no time of the link. A wait in which nothing can come before the
// deadline is a TimeoutError at once. Other failures are those of `inner`.
//
// ConfigError unless the cluster has as many devices as there are ranks. `now` is for tests.
std::unique_ptr<Channels> make_pair_links(std::unique_ptr<Channels> inner, const PairCluster& cluster,
                                          std::function<SteadyTime()> now = SteadyClock::now);

}  // namespace dear::channels

namespace dear::backends {

// A backend whose collectives are programs over such channels: each message of a collective takes the link of
// its two ranks. Groups that are split off share the links of their ranks. Algorithms are chosen for the
// slowest link. With `reproducible` sums are added in the order of ranks (ProgramOptions).
struct PairShapedOptions {
  bool reproducible = false;
  std::function<SteadyTime()> now = SteadyClock::now;  // another one is for tests
};
std::unique_ptr<Backend> make_shaped(std::unique_ptr<channels::Channels> inner, const PairCluster& cluster,
                                     const PairShapedOptions& options = {});

// "two rooms (4 devices, 0.008 to 10 Gbit/s, latencies 100 us to 50 ms)"
std::string describe(const PairCluster& cluster);

}  // namespace dear::backends
