#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dear/backends/environment.h"
#include "dear/base/deadline.h"
#include "dear/collective/backend.h"

// The backends that a group can be on, by name: one table for init(), for `--backend` and for benches.
namespace dear {

// What a backend is made for.
struct Placement {
  LaunchEnvironment environment;
  Deadline deadline;          // for all ranks to come
  bool reproducible = false;  // sums in the order of ranks, to the bit the same on every backend that can
};

struct MadeBackend {
  std::unique_ptr<Backend> backend;
  std::string note;  // what a user may want to know of it, to stand behind its name; or ""
};

struct BackendEntry {
  std::string_view name;
  std::string_view summary;
  // "" where it can be had; else what is missing and how to get it.
  std::string (*missing)();
  // All errors of a backend's start: ConfigError where it cannot be had or cannot serve these ranks.
  MadeBackend (*make)(const Placement& placement);
};
const std::vector<BackendEntry>& backend_table();
// ConfigError that lists them all.
const BackendEntry& find_backend(std::string_view name);

// The backend for these ranks, and why, in a sentence: "all 4 ranks are on this host".
struct BackendChoice {
  std::string name;
  std::string reason;
  std::unique_ptr<Backend> backend;
};
// By name, or, for "", the fastest that reaches all ranks. Where they run is tested and not believed: ranks
// share memory when they met in it, or said over MPI that they run in one place.
BackendChoice choose_backend(std::string_view name, const Placement& placement);

}  // namespace dear
