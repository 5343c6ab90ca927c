#pragma once

#include <memory>
#include <string>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/backend.h"
#include "dear/comm/mpi/channels/mpi.h"

namespace dear::backends {

// [Note: memory beside MPI] Where all ranks of an MPI are on one host, a message through MPI is a detour, and
// MPI may take survivors along when a rank dies. So MPI only brings the ranks together there and sees them
// off, and collectives are those of backend shm, buffers included: the same code, the same bits. A rank that
// waits moves MPI on meanwhile: what MPI took from it while they met may not have left it yet.
//
// All ranks of `mpi` call it, all of them on one host; it takes `mpi`. Null on all of them where any cannot
// have the memory: then `mpi` is left as it was, and `why_not` says why, where this rank knows.
std::unique_ptr<Backend> make_on_one_host(std::unique_ptr<channels::Mpi>& mpi, Deadline deadline,
                                          std::string& why_not);

}  // namespace dear::backends
