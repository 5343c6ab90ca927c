#pragma once

#include <memory>

#include "dear/comm/channels/channels.h"
#include "dear/comm/shm/control.h"
#include "dear/comm/shm/shm.h"

namespace dear::backends {

// Channels between the ranks of one host: a ring of bytes from each rank to each other, in the part of a
// buffer of the one that reads it. A message goes through it piece by piece, as both ends are at it; what is
// not expected yet is put aside. They wait, fail and abort by `control`, which is that of `memory`, and may
// live longer than that. Collective.
std::unique_ptr<channels::Channels> make_shm_channels(SharedMemory& memory, std::shared_ptr<Control> control,
                                                      Deadline deadline);

}  // namespace dear::backends
