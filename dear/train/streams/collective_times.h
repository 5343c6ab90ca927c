#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/Device.h>

#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::streams {

// How long a reduce-scatter and an all-gather of so many elements of fp32 take one after the other, in
// seconds, the median of a few for each number. All ranks together, between steps; the host waits for it.
// Numbers are multiples of the number of ranks.
std::vector<double> time_collectives(StreamCollectives& collectives, BucketStreams& streams,
                                     c10::Device device, const std::vector<std::int64_t>& elements);

}  // namespace dear::streams
