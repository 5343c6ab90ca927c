#pragma once

#include <cstdint>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/mpi/channels/binding.h"

// MPI's life in this process: it starts once, at most one object uses it at a time, and it ends with the
// process.
namespace dear::channels {

struct MpiWorld {
  const MpiBinding* binding = nullptr;
  int rank = 0;
  int size = 1;
  std::uint32_t session = 0;  // how often it was taken, this time included; the same on all ranks
};

// Starts MPI, or takes it up again where it was given back. TimeoutError when the other ranks do not come:
// then MPI is lost to this process. ConfigError when it is in use, or was started with another binding;
// TransportError when it was lost.
// Whether it outlives its peers (mpi.h) is settled where it starts.
MpiWorld take_mpi(const MpiBinding& binding, bool outlive_peers, Deadline deadline);

enum class MpiState : std::uint8_t { whole, lost };
// Lost: something failed in it. The process then ends without a word to MPI, which would wait for ranks that
// may be gone; else by MPI's own farewell, for which all ranks wait until one says that it failed, as long as
// take_mpi() could wait at most: who leaves early would have mpirun end those that still work. When all have
// met there, MPI has ten seconds to end.
void give_back_mpi(MpiState state) noexcept;

}  // namespace dear::channels
