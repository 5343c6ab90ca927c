#pragma once

#include <memory>
#include <string>

#include "dear/comm/group/backend.h"
#include "dear/comm/mpi/channels/mpi.h"

// Backends for ranks on any hosts that an MPI reaches. They run programs of ours over MPI's messages, and
// MPI's own collectives where these are faster and give the same bits. Where all ranks are on one host, they
// use memory that they share: see [Note: memory beside MPI].
namespace dear::backends {

// The name of the MPI to which the launcher ("Open MPI", "MPICH") belongs; under another launcher, or none,
// the only MPI that DeAR was built with. ConfigError where there is none, or more than one to choose from.
std::string mpi_of_launcher(const std::string& launcher);

struct MpiBackendOptions {
  // Adds contributions in the order of ranks. On one host of fewer than kManyRanks this costs nothing and is
  // always done. Across hosts large sums otherwise go around a ring.
  bool reproducible = false;
  // The folder where the fastest algorithms are remembered; "" for none.
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
MpiBackend make_mpi(std::unique_ptr<channels::Mpi> mpi, const MpiBackendOptions& options);

// "Open MPI 4.1.4, 4 ranks on 2 hosts"
std::string describe(const channels::Mpi& mpi);

}  // namespace dear::backends
