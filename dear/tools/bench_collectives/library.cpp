#include "dear/tools/bench_collectives/library.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/gloo/channels/gloo.h"
#include "dear/comm/mpi/channels/mpi.h"
#include "dear/tools/bench_collectives/gloo_collectives.h"
#include "dear/tools/bench_collectives/group_collectives.h"
#include "dear/tools/bench_collectives/memcpy_collectives.h"
#include "dear/tools/bench_collectives/mpi_collectives.h"

namespace dear::bench_collectives {
namespace {

Group group_over(const std::string& backend, const LibraryOptions& options) {
  return init({.timeout = options.timeout,
               .grid = options.grid,
               .backend = backend,
               .reproducible = options.reproducible,
               .say = [](const auto&) {}});  // the benchmark says itself what it measures
}
std::unique_ptr<Collectives> open_group(const std::string& backend, const LibraryOptions& options) {
  return make_group_collectives(group_over(backend, options), options.ahead);
}
std::unique_ptr<Collectives> open_shm(const LibraryOptions& options) { return open_group("shm", options); }
std::unique_ptr<Collectives> open_shm_one_copy(const LibraryOptions& options) {
  return make_one_copy_collectives(group_over("shm", options), options.ahead);
}
// Opens the MPI of the launcher that started this process.
std::unique_ptr<Collectives> open_mpi_backend(const LibraryOptions& options) {
  return open_group("mpi", options);
}
std::unique_ptr<Collectives> open_gloo_backend(const LibraryOptions& options) {
  return open_group("gloo", options);
}
std::unique_ptr<Collectives> open_openmpi(const LibraryOptions& options) {
  return open_mpi_collectives("openmpi", options);
}
std::unique_ptr<Collectives> open_mpich(const LibraryOptions& options) {
  return open_mpi_collectives("mpich", options);
}
std::unique_ptr<Collectives> open_memcpy(const LibraryOptions&) { return make_memcpy_collectives(); }

std::string never_missing() { return ""; }
std::string module_missing(const std::string& implementation) {
  const auto built = channels::mpi_implementations();
  return std::find(built.begin(), built.end(), implementation) != built.end()
             ? ""
             : fmt::format("this `dear` was built without {0}; install lib{0}-dev and build it again",
                           implementation);
}
std::string openmpi_missing() { return module_missing("openmpi"); }
std::string mpich_missing() { return module_missing("mpich"); }

}  // namespace

const std::vector<Library>& libraries() {
  static const std::vector<Library> kTable{
      {.name = "shm", .summary = "DeAR on shared memory", .open = open_shm, .missing = never_missing},
      {.name = "shm-one-copy",
       .summary = "the same, with one copy of the parameters for all ranks",
       .open = open_shm_one_copy,
       .missing = never_missing},
      {.name = "mpi-openmpi",
       .summary = "DeAR over Open MPI",
       .starter = Starter::openmpi,
       .open = open_mpi_backend,
       .missing = openmpi_missing},
      {.name = "mpi-mpich",
       .summary = "DeAR over MPICH",
       .starter = Starter::mpich,
       .open = open_mpi_backend,
       .missing = mpich_missing},
      {.name = "gloo",
       .summary = "DeAR over Gloo",
       .open = open_gloo_backend,
       .missing = channels::gloo_missing},
      {.name = "openmpi",
       .summary = "Open MPI's own collectives",
       .starter = Starter::openmpi,
       .rival = true,
       .open = open_openmpi,
       .missing = openmpi_missing},
      {.name = "mpich",
       .summary = "MPICH's own collectives",
       .starter = Starter::mpich,
       .rival = true,
       .open = open_mpich,
       .missing = mpich_missing},
      {.name = "gloo-own",
       .summary = "Gloo's own collectives",
       .rival = true,
       .open = open_gloo_collectives,
       .missing = channels::gloo_missing},
      {.name = "memcpy",
       .summary = "each rank copies its vector once: the floor",
       .rival = true,
       .only_copies = true,
       .open = open_memcpy,
       .missing = never_missing},
  };
  return kTable;
}

const Library& find_library(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Library& library : libraries()) {
    if (library.name == name) {
      return library;
    }
    names.push_back(library.name);
  }
  throw ConfigError(fmt::format("there is no library '{}'{} choose from {}", name, did_you_mean(name, names),
                                fmt::join(names, ", ")));
}

}  // namespace dear::bench_collectives
