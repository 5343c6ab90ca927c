#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/backends/environment.h"
#include "dear/tools/bench_collectives/benchmark.h"
#include "dear/tools/options/grid_options.h"

namespace dear::cli {

inline constexpr std::int64_t kAheadInTraining = 16;  // buckets of a backward pass, roughly
inline constexpr std::int64_t kMostRepeats = 100'000;

// The options of `dear bench collective` as the user wrote them, with text where a value has a form of its
// own.
struct BenchOptions {
  std::optional<std::int64_t> ranks{};  // 2; under a launcher as many as it started
  std::vector<std::string> sizes{"4B..64MiB"};
  std::vector<std::string> backends{};  // shm; under a launcher DeAR's choice
  std::string operation = "reduce-scatter+all-gather";
  std::optional<std::int64_t> seed{};  // 1; of the sizes of an all-to-all-v
  std::string dtype = "fp32";
  std::int64_t repeat = 15;
  std::vector<std::string> rivals{};    // all that can be had
  bool reproducible = false;            // of DeAR's backends: sums in the order of ranks
  std::optional<std::int64_t> ahead{};  // of DeAR's backends, likewise: operations in flight; 1, or, for
                                        // interference, kAheadInTraining
  bool touch = false;                   // vectors are written before each operation, and read after it
  std::optional<std::string> late{};    // how much later than the others rank 0 begins
  bool interference = false;            // measure the first backend while its ranks compute, too
  GridOptions grid{};
  std::optional<std::string> network{};  // a cluster file of several dimensions, all modelled
  std::optional<std::string> json{};
  std::optional<std::string> plot{};
  std::optional<std::string> cluster{};
  std::string timeout = "60s";
  std::optional<bool> bind{};  // when every rank can have a core; never under a launcher
};

// An Installation is the part of the machine and the launcher on which options depend.
struct Installation {
  std::string program;  // the path of this command
  int cores = 1;
  std::int64_t available_bytes = 0;  // of memory
  std::function<std::optional<bench_collectives::MpiLauncher>(const std::string& implementation)>
      find_mpi_launcher;
};
Installation this_installation();

// Checked options: no later step refuses any of them.
struct BenchSettings {
  bench_collectives::BenchmarkSettings benchmark;
  std::vector<std::string> notes;   // rivals that are left out, and why
  std::string json, plot, cluster;  // "" for none
};

// ConfigError, one sentence that names the option, for the first value that cannot be used, and for a
// library that was asked for and is not there. Looks at the file system, changes nothing.
BenchSettings check(const BenchOptions& options, const LaunchEnvironment& environment,
                    const Installation& installation);

// Reads sizes in bytes: "4KiB" is one size; "4B..64MiB" is the first size, each fourfold below the last, and
// the last. ConfigError.
std::vector<std::int64_t> parse_sizes(const std::vector<std::string>& texts);

}  // namespace dear::cli
