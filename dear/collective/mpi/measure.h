#pragma once

#include <chrono>

#include "dear/base/deadline.h"
#include "dear/collective/mpi/choices.h"
#include "dear/transport/mpi/mpi.h"

namespace dear::collective {

struct MeasureOptions {
  std::chrono::duration<double> budget = std::chrono::seconds(1);  // sizes beyond it go as the nearest
  Deadline deadline;                                               // for every wait
};

// Tries, with vectors of fp32, the ways of a reduce-scatter, whose sums go in the order of ranks, and of an
// all-gather; an all-reduce follows from them. A way is judged by the slowest rank's median, and takes the
// place of an earlier one where it is a twentieth faster, across hosts where it is by more than noise. Every
// rank finds the same.
Choices measure(transport::Mpi& mpi, const MeasureOptions& options);

}  // namespace dear::collective
