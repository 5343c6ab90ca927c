#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/channels/channels.h"
#include "dear/comm/group/backend.h"

// The backends that a group can be on, by name: one table for init(), for `--backend` and for benches.
namespace dear {

// The ranks for which a backend is made.
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
  // Says what is missing and how to get it; "" where nothing is.
  std::string (*missing)();
  // Starts the backend. ConfigError where it is missing or cannot serve these ranks; any other error of its
  // start.
  MadeBackend (*make)(const Placement& placement);
  // Opens the messages that carry it, in its place; null where it has none. Errors as of `make`.
  std::unique_ptr<channels::Channels> (*open_channels)(const Placement& placement);
};
const std::vector<BackendEntry>& backend_table();
// The entry of that name. ConfigError that lists all names where there is none.
const BackendEntry& find_backend(std::string_view name);

// The backend for these ranks, and why, in a sentence: "all 4 ranks are on this host".
struct BackendChoice {
  std::string name;
  std::string reason;
  std::unique_ptr<Backend> backend;
};
// The backend of that name, or for "" the fastest that reaches all ranks. Where ranks are is tested: they
// share memory if they met in it, or if they said over MPI that they run on one host.
BackendChoice choose_backend(std::string_view name, const Placement& placement);

// The messages of the backend of that name, or for "" of MPI where it started the ranks and of Gloo
// elsewhere.
struct ChannelsChoice {
  std::string name;
  std::string reason;
  std::unique_ptr<channels::Channels> channels;
};
ChannelsChoice choose_channels(std::string_view name, const Placement& placement);
// ConfigError for a backend without messages, or one that there is not.
void require_messages(std::string_view name);

}  // namespace dear
