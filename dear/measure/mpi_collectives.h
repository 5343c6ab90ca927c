#pragma once

#include <memory>
#include <string>

#include "dear/measure/collectives.h"

namespace dear::measure {

// MPI's own blocking collectives, as a program on plain MPI calls them. `implementation` is that of the
// launcher that started this process.
std::unique_ptr<Collectives> open_mpi_collectives(const std::string& implementation,
                                                  const LibraryOptions& options);

}  // namespace dear::measure
