#pragma once

#include <memory>
#include <string>

#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

// MPI's own blocking collectives, as a program on plain MPI calls them. `implementation` is that of the
// launcher that started this process.
std::unique_ptr<Collectives> open_mpi_collectives(const std::string& implementation,
                                                  const LibraryOptions& options);

}  // namespace dear::bench_collectives
