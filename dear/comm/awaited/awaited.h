#pragma once

#include <memory>

#include "dear/comm/awaited/channels/point_to_point.h"
#include "dear/comm/group/backend.h"
#include "dear/platform/cluster/network.h"

namespace dear::backends {

struct AwaitedOptions {
  // Adds contributions in the order of ranks, so that sums are to the bit what shared memory gives.
  bool reproducible = false;
  // The link between the ranks, from which algorithms are chosen. It has to be the same on all ranks.
  Link link{.alpha_seconds = 100e-6, .beta_seconds_per_byte = 1e-9};
};

// Programs of ours over a messaging library that tells of a message only who waits for it
// (transport/awaited): Gloo, and the process groups of libtorch. Reduce-scatters too, which Gloo does not
// have. All ranks call it.
std::unique_ptr<Backend> make_awaited(std::unique_ptr<channels::PointToPoint> point_to_point,
                                      const AwaitedOptions& options = {});

}  // namespace dear::backends
