#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "dear/cluster/network.h"
#include "dear/collective/group.h"

namespace dear {

struct InitOptions {
  // The deadline of every wait, the rendezvous included.
  std::chrono::duration<double> timeout = std::chrono::seconds(120);
  // Let collectives take the time that they would take on this network (see shaped/).
  std::optional<Network> network{};
  // One of backends(); "" for the fastest that reaches all ranks.
  std::string backend{};
  // Sums in the order of ranks, so that results are the same bits on every backend that can. `shm` always
  // does; docs/backends.md says what it costs elsewhere.
  bool reproducible = false;
  // Receives one sentence, on rank 0 of several: the backend that was chosen, and why. Where it is empty the
  // sentence goes to standard error.
  std::function<void(const std::string& sentence)> say{};
};

// The group of all ranks of this job, from the launcher's environment. ConfigError for a bad environment, an
// unknown backend, or one that is not there; TimeoutError naming the ranks that did
// not come.
Group init(const InitOptions& options = {});

}  // namespace dear
