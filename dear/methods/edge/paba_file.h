#pragma once

#include <string>
#include <vector>

#include "dear/methods/edge/paba.h"

namespace dear::methods::edge {

// A file of groups, "dear-edge-groups" (docs/formats.md): the problem, and what is asked of a plan.
struct PabaFile {
  PabaProblem problem;
  std::vector<LostWorker> lost;
  double deadline_seconds = 0;
};
// ConfigError that names the file, the place and what belongs there; also for an objective whose gradient is
// not a sum over blocks of parameters, such as that of a network.
PabaFile read_groups(const std::string& path);
PabaFile parse_groups(std::string_view text, const std::string& source);
// The text of such a file.
std::string groups_json(const PabaProblem& problem);

}  // namespace dear::methods::edge
