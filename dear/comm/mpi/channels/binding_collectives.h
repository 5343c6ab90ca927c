#pragma once

#include <mpi.h>

#include "dear/comm/mpi/channels/binding.h"

// The part of a module that calls MPI's own collectives.
namespace dear::channels {

// What they run on, once MPI has started.
void use_for_collectives(MPI_Comm communicator, int size);

// As the table of binding.h says.
int has_collective(const MpiCall* call);
int begin_collective(const MpiCall* call);
int test_collective(int* done);
int perform_collective(const MpiCall* call);

}  // namespace dear::channels
