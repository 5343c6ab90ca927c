#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/say.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/group/group.h"
#include "dear/comm/shaped/modelled_network.h"
#include "dear/platform/cluster/cluster.h"

namespace dear {

// Ranks in a grid whose dimensions are networks of their own: reduce-scatters, all-gathers and all-reduces go
// through them in chunks, all dimensions at once (docs/backends.md). The same on every rank, but for the
// names of interfaces.
struct GridSettings {
  std::vector<int> sizes{};  // of the dimensions, innermost first: their product is the number of ranks
  std::optional<Cluster> cluster{};  // sizes and links, in place of `sizes`; else links are measured at start
  bool modelled = false;             // collectives take the times of the cluster's links
  std::string algorithm = "themis";  // how orders are chosen: a name of platform/cost/chunk_planner.h
  int chunks = 64;                   // of a vector, at most
  // By dimension the interface of Gloo whose wires it takes, or "memory" inside hosts; empty: all dimensions
  // take those of the backend, but for those inside hosts where there are several hosts.
  std::vector<std::string> interfaces{};
};

struct InitOptions {
  // The deadline of every wait, the rendezvous included.
  std::chrono::duration<double> timeout = std::chrono::seconds(120);
  // That of the rendezvous, where it is another one.
  std::optional<std::chrono::duration<double>> meeting{};
  // Let collectives take the time that they would take on this network (see shaped/). One with a link for
  // each pair is for two or more ranks of one host, on a backend with messages (gloo, mpi, mpi-messages; ""
  // for one of them).
  std::optional<ModelledNetwork> network{};
  // Puts the ranks into a grid; not together with `network`.
  std::optional<GridSettings> grid{};
  // In place of the launcher's environment.
  std::optional<LaunchEnvironment> environment{};
  // One of backends(); "" for the fastest that reaches all ranks.
  std::string backend{};
  // Sums in the order of ranks, so that results are the same bits on every backend that can. `shm` always
  // does; docs/backends.md says what it costs elsewhere.
  bool reproducible = false;
  // Receives one sentence, on rank 0 of several: the backend that was chosen, and why. Where it is empty the
  // sentence goes to standard error.
  Say say{};
};

// The group of all ranks of this job, from the launcher's environment. ConfigError for a bad environment, an
// unknown backend, or one that is not there or cannot take the network; TimeoutError naming the ranks that
// did not come.
Group init(const InitOptions& options = {});

// Has the ranks of a group that the program made itself watched, as init() does: [Note: liveness]. Every rank
// calls it, before the group is split.
void watch(const Group& group);

// The ranks of a backend that a program made itself, such as make_c10d() on a process group, in a grid. Every
// rank calls it. Of the options `timeout` and `reproducible` count. ConfigError for a grid that cannot be,
// and for interfaces; MismatchError naming the rank whose settings differ.
Group group_in_grid(std::unique_ptr<Backend> backend, const GridSettings& settings,
                    const InitOptions& options = {});

}  // namespace dear
