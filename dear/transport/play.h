#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/algorithm/program.h"
#include "dear/base/deadline.h"
#include "dear/transport/channels.h"
#include "dear/transport/player.h"

namespace dear::transport {

// A program, and what it needs to become a collective on memory.
struct Score {
  const algorithm::Program* program = nullptr;
  std::vector<ByteRange> blocks;  // by block; of an all-to-all those from program->blocks on, in the output
  std::int64_t element_bytes = 1;
  std::int64_t segment_bytes = 64 * 1024;
  Performance performance;
};

// Plays this rank's part once. Who plays it often makes a Player instead. Returns when it is done and the
// memory may be written again; all errors of Channels.
void play(const Score& score, Channels& channels, const Channels::Describe& what, Deadline deadline);

}  // namespace dear::transport
