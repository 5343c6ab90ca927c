#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/eager_order.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear::fusion {

enum class Cutting : std::uint8_t {
  in_chunks,  // as Bucket::chunk_bytes says
  whole       // each bucket is a chunk
};

// The chunks that the buckets of a grouping travel in, in forward order, with the workload's times, those of
// the collectives (0 where none is given), and updates of shards. A bucket is ready with the backward of the
// layer that uses it first, and needed by the forward of the same: a tied tensor, which a later layer uses as
// well, counts as one of the first.
std::vector<TimedChunk> chunks_of(const Workload& workload, const Grouping& grouping,
                                  const cost::CollectiveTimes& times, Cutting cutting = Cutting::in_chunks);

}  // namespace dear::fusion
