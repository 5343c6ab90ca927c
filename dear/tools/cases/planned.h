#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/predict/plan/plan.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/tools/cases/compression_choice.h"
#include "dear/tools/cases/rounds_cases.h"
#include "dear/tools/cases/scenario.h"

namespace dear::cases {

// PlanNames are the names and numbers that a user gives to `dear plan` or dear.plan().
struct PlanNames {
  std::vector<std::string> policies{};  // to choose from; empty: all
  std::string algorithm = "auto";       // see ClusterTimesOptions
  int optimizer_states = 2;             // see sim::memory_of()
  int micro_batches = 1;                // see sim::EvaluateOptions
  CompressionNames compression{};
};

struct PlannedScenario {
  const Scenario* scenario = nullptr;
  plan::Answer answer;
  std::vector<std::string> codecs{};  // of the compressions: see Compressions::Modelled
  std::optional<PlannedRounds> rounds{};
};

// ConfigError for a name that there is not.
plan::Options find_options(const PlanNames& names);

// With the memory that the scenario knows, and with compressions, which replace those of the options. The
// scenario outlives what is returned. ConfigError as plan::plan().
PlannedScenario plan(const Scenario& scenario, plan::Options options,
                     const std::vector<Compressions::Modelled>& compressions = {});

// A list of {model, cluster, ranks, rows, ...}: see docs/formats.md.
std::string to_json(const std::vector<PlannedScenario>& planned);

// SVG: a panel for each scenario, a bar for each policy.
std::string plot(const std::vector<PlannedScenario>& planned);

// The policy and the buckets to use. ConfigError where nothing fits into the memory of a rank.
ScheduleFile schedule_of(const PlannedScenario& planned);

}  // namespace dear::cases
