#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/base/deadline.h"
#include "dear/collective/request.h"
#include "dear/collective/shm/shm.h"

namespace dear::collective {

// Collectives on memory that is each rank's own, among ranks of one host: what the peers need of it is put
// down on a stage, a buffer that all of them read, and taken from there. One copy more than where the vectors
// themselves are shared; sums in the order of ranks.
class Staged {
 public:
  // For vectors of up to `room_bytes`. Collective: every rank of `host` makes one, and uses it alike. `host`
  // outlives it.
  Staged(SharedMemory& host, std::int64_t room_bytes, Deadline deadline);

  [[nodiscard]] std::int64_t room_bytes() const { return room_bytes_; }
  // `data` and `output` (of an all-to-all) are where the request's view and output begin; its buffers are not
  // looked at. Errors are those of SharedMemory::run().
  Timing run(const Request& request, std::byte* data, std::byte* output, Deadline deadline);

 private:
  using Parts = std::vector<std::byte*>;

  SharedMemory& host_;
  std::int64_t room_bytes_;
  Buffer stage_;
  // [Note: two stages] Nobody waits for the end of a collective: its stage is used again in the one after the
  // next, and no rank gets there before all have come to the next, and so are through with this.
  std::array<Parts, 2> stages_;  // by rank
  std::size_t next_ = 0;
};

// The same request as peers see it who know nothing of this rank's buffers.
Request without_buffers(const Request& request);

}  // namespace dear::collective
