#pragma once

#include <memory>

#include "dear/transport/awaited/point_to_point.h"
#include "dear/transport/channels.h"

namespace dear::transport {

// Channels over a messaging library that tells of a message only who waits for it. A thread waits for each
// peer, and one more for each direction and tag of messages exchanged with it; all of them sleep. The
// messaging library carries nothing else meanwhile, and after a failure its connections are broken.
std::unique_ptr<Channels> make_awaited(std::unique_ptr<PointToPoint> point_to_point);

}  // namespace dear::transport
