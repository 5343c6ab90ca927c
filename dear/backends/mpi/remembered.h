#pragma once

#include <string>

#include "dear/backends/mpi/choices.h"
#include "dear/backends/mpi/measure.h"
#include "dear/transport/mpi/mpi.h"

namespace dear::backends {

// The choices of all ranks, and where they are from.
struct Remembered {
  Choices choices;
  std::string origin;  // "measured in 0.8 s and remembered in FILE", "remembered in FILE"
};

// Rank 0 looks into its cache folder. What is found there of this MPI, these ranks and hosts serves all,
// after a check: what is a quarter slower than it was, or slower than what was second to it, is measured
// again. Where nothing is found they measure all. Rank 0 writes down what is new. A file that is broken,
// foreign, of another form or cannot be written changes nothing but the origin.
Remembered remember_or_measure(transport::Mpi& mpi, const std::string& cache_folder,
                               const MeasureOptions& options);

}  // namespace dear::backends
