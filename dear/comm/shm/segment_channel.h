#pragma once

#include <cstdint>
#include <memory>

#include "dear/base/os/segment.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::backends {

using os::Segment;

// How a segment that rank 0 created reaches the other ranks.
class SegmentChannel {
 public:
  virtual ~SegmentChannel() = default;
  // Called on rank 0. It does not wait for the others.
  virtual void give(const std::shared_ptr<Segment>& segment) = 0;
  // Called on each other rank, as often as rank 0 gives.
  virtual std::shared_ptr<Segment> take(std::int64_t bytes, Deadline deadline) = 0;
};

}  // namespace dear::backends
