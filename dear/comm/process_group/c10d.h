#pragma once

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dear/comm/group/backend.h"
#include "dear/comm/group/group.h"
#include "dear/platform/cluster/network.h"

// The process groups of libtorch (c10d) as groups of DeAR.
namespace dear {

struct C10dOptions {
  std::chrono::duration<double> timeout = std::chrono::seconds(120);  // see Group::Options
  // Adds contributions in the order of ranks, so that sums are to the bit what shared memory gives.
  bool reproducible = false;
  // The link between the ranks, from which algorithms are chosen. It has to be the same on all ranks.
  Link link{.alpha_seconds = 100e-6, .beta_seconds_per_byte = 1e-9};
};

// Any process group that can send and receive memory of the host (Gloo, MPI, UCC) as a group, by programs of
// our own: reduce-scatters too, which Gloo does not have. Of a ProcessGroup its backend for the CPU serves.
// Collective: every rank calls it. The process group carries nothing else while the group lives, and ends
// with it after a failure. ConfigError where it is null, has no backend for the CPU, or is one of NCCL, which
// carries only memory of GPUs.
//
// Where a program that is not of Python made a Gloo of its own, Gloo's threads raise SIGPIPE when a peer
// dies: ignore it, as Python does.
//
//   dear::Group group = dear::train::group_on(process_group);  // as for DistributedDataParallel
Group group_on(const c10::intrusive_ptr<::c10d::ProcessGroup>& process_group,
               const C10dOptions& options = {});
Group group_on(c10::intrusive_ptr<::c10d::Backend> backend, const C10dOptions& options = {});

// The backend of group_on(), without a Group around it.
std::unique_ptr<Backend> make_c10d(const c10::intrusive_ptr<::c10d::ProcessGroup>& process_group,
                                   const C10dOptions& options = {});
std::unique_ptr<Backend> make_c10d(c10::intrusive_ptr<::c10d::Backend> backend,
                                   const C10dOptions& options = {});

}  // namespace dear
