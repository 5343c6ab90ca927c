#pragma once

#include "dear/collective/request.h"
#include "dear/transport/mpi/mpi.h"

namespace dear::backends {

// Collectives as MPI itself has them, for requests of ours.
class MpisOwn {
 public:
  explicit MpisOwn(transport::Mpi& mpi) : mpi_(mpi) {}

  // Whether MPI's has the same outcome, to the bit: shards of equal size, and a reduction that does not
  // depend on an order, which sums of floating point do from three ranks on.
  [[nodiscard]] bool can(const Request& request) const;
  void run(const Request& request, const transport::Channels::Describe& what, Deadline deadline);

 private:
  transport::Mpi& mpi_;
};

}  // namespace dear::backends
