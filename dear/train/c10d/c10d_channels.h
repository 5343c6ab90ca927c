#pragma once

#include <memory>

#include "dear/train/c10d/process_group.h"
#include "dear/transport/channels.h"

namespace dear::train {

// Channels over the sends and receives of a process group, in host memory. A thread waits for each peer, and
// one more for each direction and tag of messages exchanged with it; all of them sleep. One at a time for a
// process group, which must carry nothing else meanwhile with tags of 0 and more. After a failure its
// connections are broken.
std::unique_ptr<transport::Channels> make_c10d_channels(ProcessGroup group);

}  // namespace dear::train
