#pragma once

#include <memory>
#include <string>

#include "dear/collective/backend.h"
#include "dear/transport/mpi/mpi.h"

// Ranks on any hosts that an MPI reaches: programs of ours over MPI's messages, and MPI's own collectives
// where they are faster and give the same bits. Where all are on one host, through memory that they share:
// see [Note: memory beside MPI].
namespace dear::backends {

// The MPI of that launcher ("Open MPI", "MPICH"); under another one, or none, the only one that DeAR was
// built with. ConfigError where there is none, or more than one to choose from.
std::string mpi_of_launcher(const std::string& launcher);

struct MpiBackendOptions {
  // Sums in the order of ranks. On one host they always go so, below kManyRanks: there it costs nothing.
  // Across hosts large ones otherwise go around a ring.
  bool reproducible = false;
  // Where it is remembered which algorithms are the fastest; "" for nowhere.
  std::string cache_folder{};
  bool share_memory = true;  // on one host; false for everything by messages
  Deadline deadline;
};
inline constexpr int kManyRanks = 17;

struct MpiBackend {
  std::unique_ptr<Backend> backend;
  std::string choices;  // which algorithm each collective takes, and how that was found out
};
// Makes the backend over MPI; all ranks call it. It measures which algorithm is the fastest, in about a
// second on one host and ten across, unless a choice is remembered for the same MPI, ranks and hosts. A
// remembered choice is checked, in two seconds at most, and measured again where it has become slower.
MpiBackend make_mpi(std::unique_ptr<transport::Mpi> mpi, const MpiBackendOptions& options);

// "Open MPI 4.1.4, 4 ranks on 2 hosts"
std::string describe(const transport::Mpi& mpi);

}  // namespace dear::backends
