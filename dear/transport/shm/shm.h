#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dear/transport/channels.h"
#include "dear/transport/shm/peers.h"
#include "dear/transport/shm/segment.h"

// Channels between the ranks of one host: a ring of bytes in shared memory from each rank to each other.
// Messages of any length stream through it. Who waits spins for a moment if every rank can have a processor,
// then sleeps until a peer rings its bell.
namespace dear::transport {

// For the segment that all ranks map.
std::int64_t shm_channels_bytes(int size);

// `segment` has shm_channels_bytes(size), zeroed at first, the same memory on all ranks; `peers` watches
// their processes. Nobody need wait for the others before the first message.
std::unique_ptr<Channels> make_shm_channels(std::shared_ptr<Segment> segment, Peers peers, int rank,
                                            int size);

// `size` ranks as threads of this process: channels r for the thread of rank r.
std::vector<std::unique_ptr<Channels>> make_shm_channels_threads(int size);

}  // namespace dear::transport
