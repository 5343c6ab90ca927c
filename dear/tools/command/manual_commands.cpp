#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/comm/backends/backends.h"
#include "dear/methods/moe/mixtures.h"
#include "dear/methods/pipeline/messages.h"
#include "dear/methods/pipeline/orders.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/network.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cluster/sites.h"
#include "dear/schedule/policies/policy.h"
#include "dear/systems/train_command/optimizers.h"
#include "dear/tools/cases/pipeline_cases.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/manual.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/models.h"

namespace dear::cli {
namespace {

template <typename Table>
std::vector<std::string> names(const Table& table) {
  std::vector<std::string> all;
  for (const auto& entry : table) all.emplace_back(entry.name);
  return all;
}

cli::Values values_by_option() {
  std::vector<std::string> cluster_names = names(network_presets());
  for (const ClusterPreset& preset : clusters()) cluster_names.push_back(preset.cluster.name);
  std::vector<std::string> model_names = names(zoo::models());
  for (const methods::moe::MixtureModel& model : methods::moe::mixture_models())
    model_names.emplace_back(model.name);
  cli::Values values{{"--policy", names(policies())},
                     {"--compare", names(training_policies())},
                     {"--model", model_names},
                     {"--device", names(zoo::devices())},
                     {"--cluster", cluster_names},
                     {"--network", cluster_names},
                     {"--predict", cluster_names},
                     {"--backend", names(backend_table())},
                     {"--optimizer", names(train_command::optimizers())},
                     {"--dtype", {"fp32", "fp16", "bf16"}}};
  std::vector<std::string> pair_names;
  for (const PairClusterPreset& preset : pair_clusters()) pair_names.push_back(preset.cluster.name);
  for (const std::string command : {"dear pipeline plan ", "dear pipeline simulate "}) {
    values[command + "--model"] = cases::pipeline_models();
    values[command + "--cluster"] = pair_names;
    values[command + "--planner"] = names(methods::pipeline::plan_methods());
    values[command + "--schedule"] = names(methods::pipeline::schedule_kinds());
    values[command + "--compress"] = names(methods::pipeline::compression_rules());
    values[command + "--devices"] = {"all", "fastest"};
  }
  values["dear pipeline clusters --cluster"] = pair_names;
  return values;
}

}  // namespace

void add_completion_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("completion", "Print a script that completes words of dear in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash or zsh")->required();
  command->callback([&app, shell] {
    fmt::print("{}", cli::completion_script(cli::help_of(app), values_by_option(), *shell));
  });
}

void add_man_command(CLI::App& app) {
  app.add_subcommand("man", "Print the manual page")->callback([&app] {
    fmt::print("{}", cli::manual_page(cli::help_of(app), DEAR_VERSION));
  });
}

}  // namespace dear::cli
