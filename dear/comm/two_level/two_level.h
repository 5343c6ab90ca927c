#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dear/comm/channels/channels.h"
#include "dear/comm/group/backend.h"
#include "dear/comm/shm/shm.h"

// Ranks of several hosts, shared memory inside each and channels across: a grid of two dimensions, in which
// the ranks of a host first add up, each a part, then ranks of the same local number on all hosts do. So
// every byte crosses between hosts once for a host, and all ranks of a host share the work of it.
//
// Sums are added up in another order than that of ranks, unless that is asked for: results are the same in
// every run, not those of other backends.
namespace dear::backends {

// Rank n * ranks_per_host + l is rank l of host n.
struct TwoLevelShape {
  int hosts = 1;
  int ranks_per_host = 1;
};

// From the number of each rank's host. Nothing where it is no such grid: hosts of different sizes, ranks
// dealt out in turns, one host only, or one rank on each.
std::optional<TwoLevelShape> two_level_shape(const std::vector<int>& host_of_rank);

struct TwoLevelOptions {
  TwoLevelShape shape;
  bool reproducible = false;  // contributions travel unsummed, and are added in the order of ranks
};

// `host`: the ranks of this host. `channels`: of all ranks.
std::unique_ptr<Backend> make_two_level(std::unique_ptr<SharedMemory> host,
                                        std::unique_ptr<channels::Channels> channels,
                                        const TwoLevelOptions& options);

}  // namespace dear::backends
