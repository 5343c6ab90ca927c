#pragma once

#include <chrono>

#include "dear/cluster/network.h"
#include "dear/collective/group.h"
#include "dear/train/c10d/backends.h"
#include "dear/train/c10d/process_group.h"

// The process groups of libtorch (c10d) as groups of DeAR.
namespace dear::train {

struct C10dOptions {
  std::chrono::duration<double> timeout = std::chrono::seconds(120);  // see Group::Options
  // Sums in the order of ranks, to the bit what shared memory gives.
  bool reproducible = false;
  // The network between the ranks, by which algorithms are chosen; the same on all ranks.
  Link link{.alpha_seconds = 100e-6, .beta_seconds_per_byte = 1e-9};
};

// Any process group that can send and receive memory of the host (Gloo, MPI, UCC) as a group, by programs of
// our own: reduce-scatters too, which Gloo does not have. Collective: every rank calls it. The process group
// carries nothing else while the group lives, and ends with it after a failure. Where a C++ program makes a
// Gloo of its own (not by make_gloo()), Gloo's threads raise SIGPIPE when a peer dies: ignore it, as Python
// does. ConfigError for one of
// NCCL, which carries only memory of GPUs (collective/nccl/nccl.h).
//
//   auto gloo = ...;  // as for DistributedDataParallel
//   dear::Group group = dear::train::group_on(gloo);
Group group_on(ProcessGroup process_group, const C10dOptions& options = {});

// The same as a backend.
std::unique_ptr<Backend> make_c10d(ProcessGroup process_group, const C10dOptions& options = {});

}  // namespace dear::train
