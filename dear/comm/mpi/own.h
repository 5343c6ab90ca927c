#pragma once

#include "dear/comm/group/request.h"
#include "dear/comm/mpi/channels/mpi.h"

namespace dear::backends {

// Runs requests of ours by MPI's own collectives.
class MpisOwn {
 public:
  explicit MpisOwn(channels::Mpi& mpi) : mpi_(mpi) {}

  // Whether MPI's collective has the same outcome to the bit: shards have equal size, and the reduction does
  // not depend on an order, as sums of floating point do from three ranks on.
  [[nodiscard]] bool can(const Request& request) const;
  void run(const Request& request, const channels::Channels::Describe& what, Deadline deadline);

 private:
  channels::Mpi& mpi_;
};

}  // namespace dear::backends
