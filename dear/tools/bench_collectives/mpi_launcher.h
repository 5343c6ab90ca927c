#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"

namespace dear::bench_collectives {

// What starts ranks of one implementation of MPI on this host.
struct MpiLauncher {
  std::vector<std::string> command;  // to be followed by the number of ranks and the program
  std::string version;               // "Open MPI 4.1.4"
};

// The launcher of "openmpi" or "mpich": by the name that distributions give it where several are installed
// (mpirun.openmpi, mpiexec.mpich), else mpirun or mpiexec where it says that it is that implementation's.
std::optional<MpiLauncher> find_mpi_launcher(const std::string& implementation);

// "Open MPI 4.1.4" for what `mpirun --version` printed; "" for another implementation's.
std::string mpi_version_in(const std::string& implementation, const std::string& printed);

}  // namespace dear::bench_collectives
