#pragma once

#include <memory>

#include "dear/cluster/network.h"
#include "dear/collective/backend.h"

namespace dear::backends {

// The same group over a modelled link: collectives take as long as a ring would on it (cost/ring.h), counted
// from the moment in which all ranks are there or the one before has ended, whichever is later. What is left
// after the real work is slept, not spun. modelled_network() says so, and every report of such a run must.
std::unique_ptr<Backend> make_shaped(std::unique_ptr<Backend> inner, const Network& network);

}  // namespace dear::backends
