#pragma once

#include <memory>

#include "dear/comm/group/backend.h"
#include "dear/platform/cluster/network.h"

namespace dear::backends {

// The backend `inner` over a modelled link: a collective takes as long as a ring would take on the link
// (platform/cost/ring.h), from the moment when all ranks are there or the collective before has ended,
// whichever is later. Groups that are split off share the link of their rank. The time that is left after the
// real work is slept, not spun. modelled_network() names the network, and every report of such a run must.
std::unique_ptr<Backend> make_shaped(std::unique_ptr<Backend> inner, const Network& network);

}  // namespace dear::backends
