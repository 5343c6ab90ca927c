#pragma once

#include <string>

#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

struct WorkerOptions {
  std::string library;     // by its name in the table
  std::string control;     // where the coordinator listens
  bool bind = false;       // this rank keeps to its part of the cores
  LibraryOptions opening;  // how the library is opened
};

// Serves the coordinator as one rank of a library; returns when told to end. A failure is sent to the
// coordinator, then thrown. When the coordinator is gone, this process exits at once, even inside a
// collective.
void run_worker(const WorkerOptions& options);

}  // namespace dear::bench_collectives
