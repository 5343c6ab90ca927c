#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/json/json_field.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"
#include "dear/systems/train_command/optimizers.h"
#include "dear/systems/train_command/profile_run.h"
#include "dear/systems/train_command/training_module.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/profile_report.h"
#include "dear/tools/command/train_options.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/workload/layers/workload_file.h"
#include "dear/workload/zoo/device.h"

namespace dear::cli {
namespace {

constexpr std::size_t kShownLayers = 8;
constexpr std::int64_t kStepsForShapes = 3;

struct ProfileArguments {
  train_command::ProfileSettings settings{.optimizer = "adamw"};
  std::vector<std::string> inputs;
  std::optional<int> threads;
  std::optional<std::string> out, name, device, dtype;
};

std::vector<train_command::ModelInput> parse_inputs(const std::vector<std::string>& texts) {
  std::vector<train_command::ModelInput> inputs;
  for (const std::string& text : texts) {
    inputs.push_back(parse_option("--input", [&] { return train_command::parse_model_input(text); }));
  }
  return inputs;
}

// The name of a profile, such as "resnet50, 8x3x224x224": the inputs belong to it, since times depend on the
// batch.
std::string name_of(const ProfileArguments& arguments) {
  if (arguments.name) return *arguments.name;
  const std::string stem = std::filesystem::path(arguments.settings.model).stem().string();
  return arguments.inputs.empty() ? stem : fmt::format("{}, {}", stem, fmt::join(arguments.inputs, ", "));
}

std::string heading(const train_command::ProfileSettings& settings, const std::string& name, int threads) {
  return fmt::format("profile of {}: optimiser {}, {} thread{}, {} steps after {} to warm up\n", name,
                     settings.optimizer, threads, threads == 1 ? "" : "s", settings.steps, settings.warm_up);
}

// One that has the device of the workload, or a flat network of machines like this one.
std::string next_cluster(const Workload& workload) {
  for (const ClusterPreset& preset : clusters())
    if (preset.cluster.device == workload.device) return preset.cluster.name;
  return "10gbe --ranks 16";
}

void run_profile_command(const ProfileArguments& arguments) {
  train_command::ProfileSettings settings = arguments.settings;
  if (arguments.dtype && !arguments.device)
    throw ConfigError("--dtype says in what a device of --device trains: give one, or leave it out");
  if (arguments.device) {
    const zoo::Device& device = zoo::find_device(*arguments.device);
    settings.device = device.name;
    if (arguments.dtype)
      settings.dtype = parse_option("--dtype", [&] { return parse_dtype(*arguments.dtype); });
    (void)zoo::seconds(device, {}, 1, settings.dtype);  // refuses a type that it does not train in
    // They only show which layers there are.
    settings.steps = std::min(settings.steps, kStepsForShapes);
    settings.warm_up = 1;
  }
  settings.inputs = parse_inputs(arguments.inputs);
  const std::string out = checked_output_path("--out", arguments.out);
  const std::string name = name_of(arguments);
  if (name.empty()) throw ConfigError("--name is empty; name the workload");
  require_readable(name, arguments.name ? "--name" : "the name that the model's file and inputs give");
  const Host host = this_host();
  const int threads = arguments.threads.value_or(host.threads.value_or(host.cores));
  train_command::training_module().set_compute_threads(threads);

  train_command::ModelProfile measured = train_command::training_module().profile(settings);
  measured.workload.name = name;
  write_checked([&] { write_workload(measured.workload, out); });
  std::cout << heading(settings, name, threads) << to_text(measured, kShownLayers)
            << fmt::format("\nworkload: {}\nnext: dear plan --model {} --cluster {}\n", out, out,
                           next_cluster(measured.workload))
            << std::flush;
}

}  // namespace

void add_profile_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "profile", "Measure a TorchScript model, layer by layer, for plan, simulate and replay");
  const OptionAdder add(*command);
  const auto arguments = std::make_shared<ProfileArguments>();
  train_command::ProfileSettings& settings = arguments->settings;
  command->add_option("MODEL.pt", settings.model, "What torch.jit.save wrote of a scripted or traced model")
      ->required();
  add("--input", arguments->inputs, "SHAPE[:TYPE]",
      fmt::format("Shape, and perhaps type, of a tensor that forward takes, filled with random "
                  "numbers; again for each further one: 8x3x224x224, 8x64:int64. Types: {}",
                  fmt::join(train_command::input_dtypes(), ", ")))
      ->allow_extra_args(false);
  add("--device", arguments->device, "NAME",
      "Say how long the model's kernels, counted here, take on another device by its roofline: one that "
      "`dear models` lists");
  add("--dtype", arguments->dtype, "NAME",
      "Of parameters, gradients and activations on that device: fp32 (default), fp16, or bf16");
  add("--out", arguments->out, "FILE", "Write the workload to FILE")->required();
  add("--name", arguments->name, "NAME",
      "Of the workload (default: the model's file and the shapes of its inputs)");
  std::vector<std::string> optimizer_names;
  for (const train_command::OptimizerChoice& choice : train_command::optimizers())
    optimizer_names.emplace_back(choice.name);
  add.with_default("--optimizer", settings.optimizer, "NAME", "Whose updates are measured")
      ->check(CLI::IsMember(optimizer_names));
  constexpr std::int64_t kMostSteps = 1'000'000;
  add.with_default("--steps", settings.steps, "K", "Steps to measure; as many go before them unrecorded")
      ->check(CLI::Range(std::int64_t{3}, kMostSteps));
  add.with_default("--warm-up", settings.warm_up, "K", "Steps before those")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps));
  add("--threads", arguments->threads, "N",
      "To compute with (default: OMP_NUM_THREADS, else the cores); as many as a rank will have")
      ->check(CLI::Range(1, launch::kMostRanks));
  add.with_default("--range", settings.range, "N",
                   "Integer inputs are below N: give the size of the vocabulary, so that an embedding is "
                   "read as it will be")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  add.with_default("--seed", settings.seed, "N", "Of the inputs, the gradients and dropout");
  command->callback([arguments] { run_profile_command(*arguments); });
}

}  // namespace dear::cli
