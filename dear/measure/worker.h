#pragma once

#include <chrono>
#include <string>

namespace dear::measure {

struct WorkerOptions {
  std::string contestant;                   // by its name in the table
  std::string control;                      // where the coordinator listens
  bool bind = false;                        // this rank keeps to its part of the cores
  bool reproducible = false;                // see EngineOptions
  int ahead = 1;                            // likewise
  std::chrono::duration<double> timeout{};  // for each wait on the peers
};

// One rank of a contestant: does what the coordinator says, and sleeps in between. Returns when told to end.
// A failure is told to the coordinator, then thrown. The process ends at once, wherever it is, when the
// coordinator goes.
void run_worker(const WorkerOptions& options);

}  // namespace dear::measure
