#pragma once

#include <string>

#include "dear/comm/group/group.h"

namespace dear::cli {

// The parts of a run that were modelled, not done: their times come from a file, a cluster's links, or a
// device's rates.
struct Modelled {
  bool computation = false;
  bool communication = false;
};
inline constexpr Modelled kAllModelled{.computation = true, .communication = true};
// The origin of a replay's result: computation is timed, and the network may be modelled.
Modelled of_replay(const Group& group);

// `json` with two fields before all others, of the object, or of each object of the list:
//   dear_version  "0.2.0"
//   modelled      a list of "computation", "communication"; empty where all was done
std::string with_origin(const std::string& json, Modelled modelled);

// Writes with_origin(), as write_file_atomically() does: what --json of every command writes.
void write_results(const std::string& path, const std::string& json, Modelled modelled);

}  // namespace dear::cli
