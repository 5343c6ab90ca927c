#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dear/algorithm/program.h"
#include "dear/base/deadline.h"
#include "dear/transport/channels.h"

namespace dear::transport {

// Bytes [begin, end) of a vector.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

// What a program needs to become a collective on memory.
struct Score {
  const algorithm::Program* program = nullptr;
  std::vector<ByteRange> blocks;  // of the vector, by block; adjacent where their numbers are; may be empty
  std::byte* data = nullptr;      // the vector of this rank
  // into[i] = into[i] (op) from[i] for whole elements; segments begin and end between elements.
  using Combine = std::function<void(std::byte* into, const std::byte* from, std::int64_t bytes)>;
  Combine combine;  // unused where the program reduces nothing
  std::int64_t element_bytes = 1;
  std::int64_t segment_bytes =
      128 * 1024;  // messages are cut into pieces of this size, so that rounds overlap
  Tag tag = 0;     // of all messages of this collective; the same on all ranks
};

// Plays this rank's part. Returns when it is done and the vector may be written again; all errors of
// Channels.
void play(const Score& score, Channels& channels, const Channels::Describe& what, Deadline deadline);

}  // namespace dear::transport
