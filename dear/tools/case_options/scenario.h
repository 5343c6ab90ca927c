#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "dear/tools/cases/compression_choice.h"
#include "dear/tools/cases/scenario.h"
#include "dear/workload/layers/workload.h"

namespace dear::cli {

// The options of `simulate` and `plan` that say which jobs run on which machines.
struct ScenarioOptions {
  std::vector<std::string> models;
  std::vector<std::string> clusters;
  std::vector<int> ranks;  // of a job; empty: all that the cluster has
  int jobs = 1;            // that share the cluster
  cases::ModelOptions model;

  void add_to(CLI::App& command);
  // Adds only the options that say how a model is built, device, batch, size, dtype, and what is made of it.
  void add_job_to(CLI::App& command);
};

// Adds the options that say which compressions are looked at, and how fast their codecs are.
void add_compression_to(CLI::App& command, cases::CompressionNames& names);

// The options of `simulate` and `plan` that say how jobs are modelled.
struct ModelOptions {
  std::string algorithm = "auto";  // see cost::ClusterTimesOptions
  int optimizer_states = 2;        // see sim::memory_of()
  int micro_batches = 1;           // see sim::EvaluateOptions
  cases::CompressionNames compression;

  void add_to(CLI::App& command);
  void add_algorithm_to(CLI::App& command);  // only how collectives travel
};

// The job of a model by name, or of a workload file, on no particular cluster. Only the options of
// add_job_to() count. ConfigError for a name or file that there is not.
Workload read_job(const ScenarioOptions& options, const std::string& model);

// What these options ask of cases::scenarios() and cases::mixture_scenarios().
cases::ScenarioOptions asked_by(const ScenarioOptions& options);

// The scenarios of every model on every cluster with every number of ranks, in nested order. ConfigError for
// a name or file that does not exist.
std::vector<cases::Scenario> scenarios(const ScenarioOptions& options);

}  // namespace dear::cli
