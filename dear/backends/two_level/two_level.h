#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dear/backends/shm/shm.h"
#include "dear/collective/backend.h"
#include "dear/transport/channels.h"

// Ranks of several hosts, shared memory inside each and channels across: first the ranks of a host add up,
// each a part, then ranks of the same local number on all hosts do. So every byte crosses between hosts once
// for a host, and all ranks of a host share the work of it.
//
// Sums are added up in another order than that of ranks: results are the same in every run, not those of
// other backends.
namespace dear::backends {

// Rank n * ranks_per_host + l is rank l of host n.
struct TwoLevelShape {
  int hosts = 1;
  int ranks_per_host = 1;
};

// From the number of each rank's host. Nothing where it is no such grid: hosts of different sizes, ranks
// dealt out in turns, one host only, or one rank on each.
std::optional<TwoLevelShape> two_level_shape(const std::vector<int>& host_of_rank);

// `host`: the ranks of this host. `channels`: of all ranks.
std::unique_ptr<Backend> make_two_level(std::unique_ptr<SharedMemory> host,
                                        std::unique_ptr<transport::Channels> channels,
                                        const TwoLevelShape& shape);

}  // namespace dear::backends
