#pragma once

#include <memory>

#include "dear/comm/awaited/channels/point_to_point.h"
#include "dear/comm/channels/channels.h"

namespace dear::channels {

// Channels over a messaging library that tells of a message only who waits for it. A thread waits for each
// peer, and one more for each direction and tag of messages exchanged with it; all of them sleep. The
// messaging library carries nothing else meanwhile, and after a failure its connections are broken.
std::unique_ptr<Channels> make_awaited(std::unique_ptr<PointToPoint> point_to_point);

}  // namespace dear::channels
