#pragma once

#include <memory>
#include <string>

#include "dear/measure/engine.h"

namespace dear::measure {

// MPI's own blocking collectives, as a program on plain MPI calls them. `implementation` is that of the
// launcher that started this process.
std::unique_ptr<Engine> open_mpi_engine(const std::string& implementation, const EngineOptions& options);

}  // namespace dear::measure
