#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/case_options/scenario.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/workload/layers/workload_file.h"

namespace dear::cli {
namespace {

struct ExportArguments {
  std::string model;
  ScenarioOptions job;
  std::optional<std::string> out;
};

void run_export(const ExportArguments& arguments) {
  const std::string out = checked_output_path("--out", arguments.out);
  const Workload workload = read_job(arguments.job, arguments.model);
  write_checked([&] { write_workload(workload, out); });
  fmt::print(
      "{} on {}: {}, {} of parameters, forward {}, backward {}, update {}\nworkload: {} (for --model of dear "
      "plan, simulate, tune and replay)\n",
      workload.name, workload.device, counted(workload.layers.size(), "layer"),
      format_bytes(workload.bytes()), format_seconds(workload.forward_seconds()),
      format_seconds(workload.backward_seconds()), format_seconds(workload.update_seconds), out);
}

}  // namespace

CLI::App* add_models_export(CLI::App& models) {
  CLI::App* const command =
      models.add_subcommand("export", "Write a model as a workload file, to look at or to edit");
  const OptionAdder add(*command);
  const auto arguments = std::make_shared<ExportArguments>();
  command->add_option("MODEL", arguments->model, "A model by name (`dear models` lists them)")->required();
  arguments->job.add_job_to(*command);
  add("--out", arguments->out, "FILE", "Write the workload to FILE")->required();
  command->callback([arguments] { run_export(*arguments); });
  return command;
}

}  // namespace dear::cli
