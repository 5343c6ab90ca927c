#pragma once

#include <string>

#include "dear/base/deadline.h"
#include "dear/transport/mpi/mpi.h"

// What ranks say to each other while a backend over MPI is made.
namespace dear::backends {

// Returns the text of rank 0, of any length, on every rank.
std::string text_of_rank_0(transport::Mpi& mpi, const std::string& text, Deadline deadline);

// Whether `so` holds on all ranks.
bool on_all_ranks(transport::Mpi& mpi, bool so, Deadline deadline);

}  // namespace dear::backends
