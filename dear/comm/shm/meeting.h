#pragma once

#include <memory>

#include "dear/base/os/peers.h"
#include "dear/base/os/segment.h"
#include "dear/comm/shm/segment_channel.h"
#include "dear/comm/shm/shm.h"

namespace dear::backends {

using os::Peers;

// A Meeting is held by a rank once all ranks have come.
struct Meeting {
  std::shared_ptr<Segment> board;  // for a Control
  Peers peers;
  std::unique_ptr<SegmentChannel> channel;
};

// [Note: the meeting] Rank 0 listens on a socket whose name (abstract: it lies in no file system) comes from
// the rendezvous text; the others connect and say rank and size. Rank 0 tells everybody who has come whenever
// one comes, so that each can name the missing ones, and at last hands out the board and a pidfd of every
// rank. A peer of another user is turned away. The sockets stay open for the segments of later buffers.
Meeting meet(const ShmOptions& options);

// The backend of a rank that has met its peers. The size is 1 to Control::kMaxRanks.
std::unique_ptr<SharedMemory> make_shm(Meeting meeting, const ShmOptions& options);

}  // namespace dear::backends
