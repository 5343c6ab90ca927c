#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dear/cluster/network.h"
#include "dear/collective/group.h"

namespace dear {

struct InitOptions {
  // For every wait, the rendezvous included.
  std::chrono::duration<double> timeout = std::chrono::seconds(120);
  // Let collectives take the time that they would take on this network (see shaped/).
  std::optional<Network> network{};
};

// The group of all ranks of this job, from the launcher's environment: `single` for a world of one, shared
// memory for ranks on this host. ConfigError for a bad environment, or for ranks on other hosts (local size
// below world size: not supported yet); TimeoutError naming the ranks that did not come.
Group init(const InitOptions& options = {});

}  // namespace dear
