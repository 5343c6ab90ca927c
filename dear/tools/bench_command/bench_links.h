#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/backends/environment.h"
#include "dear/comm/shaped/modelled_network.h"
#include "dear/tools/bench_collectives/link_times.h"

namespace dear::cli {

// The options of `dear bench links` as the user wrote them.
struct LinksOptions {
  std::optional<std::int64_t> workers{};  // 2; under a launcher as many as it started
  std::vector<std::string> sizes{"1KiB..64MiB"};
  std::int64_t repeat = 9;
  std::string longest = "200ms";
  std::string backend{};                 // DeAR's choice
  std::optional<std::string> network{};  // the real one
  std::optional<std::string> name{};     // of the cluster
  std::vector<double> flops{};           // measured
  std::vector<std::string> memory{};     // that of the host, shared by its ranks
  std::optional<std::string> output{}, json{};
  std::string timeout = "120s";
};

// Checked options: no later step refuses any of them. Of flops and memory there is one for each rank, or
// none.
struct LinksSettings {
  int workers = 2;
  bench_collectives::LinkTimesOptions times;
  std::optional<ModelledNetwork> network;
  std::string name;
  std::vector<double> flops;
  std::vector<std::int64_t> memory;
  std::string output, json;  // "" for none
  double timeout_seconds = 0;
};
// ConfigError, one sentence that names the option. Looks at the file system, changes nothing.
LinksSettings check(const LinksOptions& options, const LaunchEnvironment& environment);

// LinksResult has what rank 0 knows after all measurements.
struct LinksResult {
  PairCluster cluster;
  std::vector<bench_collectives::PairTimes> times;
  std::string description;       // of the group
  std::string modelled_network;  // "" when real
  int repeat = 0;
};
// Matrices of bandwidths and latencies, from row to column, and the devices.
std::string to_text(const LinksResult& result);
std::string to_json(const LinksResult& result);

}  // namespace dear::cli
