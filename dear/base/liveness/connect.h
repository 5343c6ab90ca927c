#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/liveness/liveness.h"
#include "dear/base/liveness/neighbour.h"
#include "dear/base/liveness/tree.h"

namespace dear::liveness {

struct Connected {
  Node node;
  std::vector<std::unique_ptr<Neighbour>> neighbours;
  std::vector<std::string> names;  // of all ranks: "rank 2 (pid 123)"
};

// Connects this rank with its neighbours. Nothing on all ranks where one of them cannot connect.
std::optional<Connected> connect(const Liveness::Options& options, const Liveness::Exchange& exchange);

}  // namespace dear::liveness
