#pragma once

#include <cstdint>

#include "dear/base/deadline.h"
#include "dear/collective/mpi/choices.h"
#include "dear/transport/mpi/mpi.h"

namespace dear::collective {

// [Note: sums across hosts] All ranks sending to all at once, as the order of ranks wants it, gets less out
// of a wire than neighbours do. So large sums go around a ring where hosts are several and the order of ranks
// is not asked for: by this rule and not by measurement, since the order of a sum shows in its last bit. How
// long its segments are does not show, and is measured.
inline constexpr std::int64_t kLargestSumInOrder = 256 * 1024;
inline constexpr const char* kAround = "ring";

struct MeasureOptions {
  bool sums_go_around = false;  // see the note
  Deadline deadline;            // for every wait
};

// Tries, with vectors of fp32, the ways of a reduce-scatter and of an all-gather; an all-reduce follows from
// them. A way is judged by the slowest rank's median, and takes the place of an earlier one where it is a
// twentieth faster. Takes a second, across hosts ten; sizes for which there is no time go as the
// nearest. Every rank finds the same.
Choices measure(transport::Mpi& mpi, const MeasureOptions& options);

}  // namespace dear::collective
