#pragma once

#include <string>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/mpi/channels/mpi.h"

// What ranks say to each other while a backend over MPI is made.
namespace dear::backends {

// Returns the text of rank 0, of any length, on every rank.
std::string text_of_rank_0(channels::Mpi& mpi, const std::string& text, Deadline deadline);

// Whether `so` holds on all ranks.
bool on_all_ranks(channels::Mpi& mpi, bool so, Deadline deadline);

}  // namespace dear::backends
