#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/mpi/mpi.h"

namespace dear::backends {

std::string mpi_of_launcher(const std::string& launcher) {
  if (launcher == "Open MPI") {
    return "openmpi";
  }
  if (launcher == "MPICH") {
    return "mpich";
  }
  const std::vector<std::string> known = channels::mpi_implementations();
  if (known.empty()) {
    throw ConfigError(
        "DeAR was built without MPI: install libopenmpi-dev or libmpich-dev, build it again, and start the "
        "ranks "
        "with mpirun");
  }
  if (known.size() > 1) {
    throw ConfigError(fmt::format(
        "nothing says which MPI to use ({} are there): start the ranks with the mpirun of one of them",
        fmt::join(known, " and ")));
  }
  return known.front();
}

std::string describe(const channels::Mpi& mpi) {
  const int hosts = 1 + *std::max_element(mpi.hosts().begin(), mpi.hosts().end());
  return fmt::format("{}, {} {} on {} {}", mpi.description(), mpi.size(), mpi.size() == 1 ? "rank" : "ranks",
                     hosts, hosts == 1 ? "host" : "hosts");
}

}  // namespace dear::backends
