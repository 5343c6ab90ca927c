#pragma once

#include <memory>
#include <string>

#include "dear/collective/backend.h"
#include "dear/transport/mpi/mpi.h"

// Ranks on any hosts that an MPI reaches.
namespace dear::collective {

// The MPI of that launcher ("Open MPI", "MPICH"); under another one, or none, the only one that DeAR was
// built with. ConfigError where there is none, or more than one to choose from.
std::string mpi_of_launcher(const std::string& launcher);

struct MpiBackendOptions {
  bool reproducible = false;  // sums in the order of ranks
};

std::unique_ptr<Backend> make_mpi(std::unique_ptr<transport::Mpi> mpi, const MpiBackendOptions& options);

// "Open MPI 4.1.4, 4 ranks on 2 hosts"
std::string describe(const transport::Mpi& mpi);

}  // namespace dear::collective
