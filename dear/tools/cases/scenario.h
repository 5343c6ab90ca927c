#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dear/base/charts/bar_chart.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/workload/layers/workload.h"

namespace dear::cases {

// A model of the zoo, as a scenario has it.
struct ModelAsBuilt {
  std::string name;
  std::int64_t size = 0;   // of a sample
  std::int64_t batch = 0;  // samples on one rank
};

// One job on one machine.
struct Scenario {
  Workload workload;
  Cluster cluster;                      // of as many ranks as take part, those of all jobs
  std::int64_t memory_bytes = 0;        // of a rank's device; 0: not known
  std::string device{};                 // that the model is built for; empty where times are fixed
  std::optional<ModelAsBuilt> model{};  // none where times are fixed
  bool checkpointed = false;            // whether activations are, see with_activation_checkpointing()
  std::string origin;                   // of the times: "built for rtx2080ti, 64 samples", "read from FILE"
};

// How a model that is given by name is built, and what is made of any job.
struct ModelOptions {
  std::string device{};          // "": the cluster's, else the one that the model was measured on
  std::int64_t batch = 0;        // samples on one rank; 0: the model's own
  std::int64_t sample_size = 0;  // 0: the model's own
  std::string dtype{};           // zoo::usual_dtype() when empty
  int optimizer_states = 2;      // of the update, see sim::memory_of(): AdamW's
  // These two of a workload file as well:
  bool checkpoint_activations = false;    // see with_activation_checkpointing()
  std::optional<double> scale_compute{};  // by which all times of computation are multiplied
};

// A model by name or the path of a workload file; or a workload, whose times are fixed as those of a file.
using ModelName = std::variant<std::string, Workload>;

struct ScenarioOptions {
  std::vector<ModelName> models;
  std::vector<std::string> clusters;  // see find_cluster()
  std::vector<int> ranks{};           // of a job; empty: all that the cluster has
  int jobs = 1;                       // that share the cluster
  ModelOptions model{};
};

// Every model on every cluster with every number of ranks, in nested order. ConfigError for a name or file
// that there is not, for options of models by name beside times that are fixed, for a number below 1, and for
// fixed times of another device than the cluster's that nobody scales.
std::vector<Scenario> scenarios(const ScenarioOptions& options);

// The job of a model on no particular cluster. ConfigError as above.
Workload find_workload(const ModelName& model, const ModelOptions& options = {});

// The device that a model by name is built for: the one asked for, else the cluster's, else `otherwise`, or
// one of the table where that is empty.
std::string device_for(const ModelOptions& options, const Cluster& cluster, std::string_view otherwise = {});

// A panel without bars for a job on so many ranks, and the chart of such panels: computation, and exposed
// communication behind it. `mark` and `interval` say what these are where bars have them.
charts::BarPanel panel_of(std::string_view model, const Cluster& cluster, int ranks);
std::string chart_of(const std::vector<charts::BarPanel>& panels, const std::string& title,
                     const std::string& mark = "", const std::string& interval = "");

}  // namespace dear::cases
