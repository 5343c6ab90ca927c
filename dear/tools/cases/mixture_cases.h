#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/methods/moe/mixtures.h"
#include "dear/methods/moe/passes.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/tools/cases/scenario.h"
#include "dear/workload/zoo/device.h"

// Iterations of models with mixtures of experts, whose tokens travel in all-to-alls.
namespace dear::cases {

// MixtureNames are the names and numbers that a user gives to `dear simulate` and `dear plan` for them.
struct MixtureNames {
  std::vector<std::string> overlaps{};  // of methods::moe::all_passes(); empty: all
  std::string gate = "switch";          // see methods::moe::find_gate()
  double capacity_factor = 1.25;
};
bool is_mixture(std::string_view model);

using Overlaps = std::vector<const methods::moe::Passes*>;
Overlaps find_overlaps(const MixtureNames& names);  // ConfigError for a name that there is not

// A model with mixtures on a cluster: what no overlap changes.
struct MixtureScenario {
  methods::moe::MixtureModel model;
  const zoo::Device* device = nullptr;  // of the table
  Cluster cluster;                      // of as many ranks as take part
  methods::moe::MixtureOptions options;
  methods::moe::MixtureJob job;

  [[nodiscard]] std::int64_t experts() const;  // of a mixture, on all ranks
};
// Takes the device, the batch, the length of a sequence and the dtype from `options.model`; without a dtype
// it takes the half precision of the device. ConfigError for a name that there is not, what
// methods::moe::make_job() refuses, and a cluster with stragglers or interference.
std::vector<MixtureScenario> mixture_scenarios(const ScenarioOptions& options, const MixtureNames& names);
std::string describe(const MixtureScenario& scenario);  // a line

// The last of some iterations, which wait for the parameters that the one before gathers.
methods::moe::Passed passed_by(const methods::moe::MixtureJob& job, const methods::moe::Passes& overlap);

struct MixtureCase {
  const MixtureScenario* scenario = nullptr;
  const methods::moe::Passes* overlap = nullptr;
  methods::moe::Passed passed;
  double experts_seconds = 0;  // an iteration with all-to-alls under experts alone

  [[nodiscard]] double seconds() const { return passed.times.iteration_seconds; }
  [[nodiscard]] double speed_up() const { return experts_seconds / seconds(); }
};
// Every overlap in every scenario, overlaps innermost. The scenarios outlive the cases.
std::vector<MixtureCase> simulate(const std::vector<MixtureScenario>& scenarios, const Overlaps& overlaps);
std::vector<MixtureCase> simulate(const MixtureScenario& scenario, const Overlaps& overlaps);

// CutNames names the first and the last instruction of a range of the forward, and counts its parts.
struct CutNames {
  std::string first, last;
  int parts = 1;
};
std::vector<CutNames> cuts_of(const MixtureCase& one);

// A list of {model, cluster, ranks, overlap, ...}: see docs/formats.md.
std::string to_json(const std::vector<MixtureCase>& cases);
// SVG: a panel for each scenario, a bar for each overlap.
std::string plot(const std::vector<MixtureCase>& cases, const std::string& title);
Trace trace_of(const MixtureCase& one);  // of rank 0, on the lanes "compute" and "network"

}  // namespace dear::cases
