#pragma once

#include <string>
#include <vector>

#include "dear/methods/edge/paba.h"

namespace dear::edge_command {

struct PlanReport {
  std::string problem;  // in words
  methods::edge::PabaProblem groups;
  std::vector<methods::edge::PabaPlan> plans;
};
// A line for each scheme, beside the first; then the groups of the last plan.
std::string to_text(const PlanReport& report);
std::string to_json(const PlanReport& report);

}  // namespace dear::edge_command
