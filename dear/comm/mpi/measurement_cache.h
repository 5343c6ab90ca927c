#pragma once

#include <string>

#include "dear/comm/mpi/channels/mpi.h"
#include "dear/comm/mpi/choices.h"
#include "dear/comm/mpi/measure.h"

namespace dear::backends {

// The choices, which are the same on all ranks, and where they come from.
struct CachedChoices {
  Choices choices;
  std::string origin;  // "measured in 0.8 s and remembered in FILE", "remembered in FILE"
};

// Rank 0 reads its cache folder. Measurements of the same MPI, ranks and hosts serve all ranks after a check:
// what has become a quarter slower, or slower than the second best of then, is measured again. Without
// measurements the ranks measure everything. Rank 0 writes new measurements down. A file that is broken,
// foreign or of another form, or that cannot be written, changes nothing but the origin.
CachedChoices load_or_measure(channels::Mpi& mpi, const std::string& cache_folder,
                              const MeasureOptions& options);

}  // namespace dear::backends
