#pragma once

#include <cstdint>
#include <vector>

#include "dear/cost/collective_times.h"
#include "dear/fusion/eager_order.h"
#include "dear/fusion/grouping.h"
#include "dear/workload/workload.h"

namespace dear {

// Bytes of a bucket that travel by themselves.
struct Cut {
  BucketId bucket = 0;
  std::int64_t begin = 0, end = 0;
};

// A grouping as what travels, in forward order; the two lists go side by side.
struct Parcels {
  std::vector<Parcel> parcels;
  std::vector<Cut> cuts;
};

enum class Cutting : std::uint8_t {
  in_pieces,  // by Bucket::piece_bytes
  whole       // a parcel is a bucket
};

// With the workload's times, those of the collectives (0 where none is given), and updates of shards. A
// bucket is ready with the backward of the layer that uses it first, and needed by the forward of the same:
// so a tied tensor, which a later layer uses as well, counts as one of the first.
Parcels parcels_of(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes& times,
                   Cutting cutting = Cutting::in_pieces);

}  // namespace dear
