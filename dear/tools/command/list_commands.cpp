#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"
#include "dear/methods/moe/mixtures.h"
#include "dear/platform/cluster/presets.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/table.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/models.h"

namespace dear::cli {
namespace {

void list_models() {
  Table models({"model", "summary", "parameters", "tensors", "layers", "GFLOP forward a sample",
                "samples a rank", "measured"},
               {.left_columns = 2});
  for (const zoo::Model& model : zoo::models()) {
    const zoo::Architecture architecture = model.make(model.size);
    models.add({std::string(model.name), std::string(model.summary),
                fmt::format("{:.1f} M", static_cast<double>(architecture.parameters()) / 1e6),
                std::to_string(architecture.tensors()), std::to_string(architecture.layers.size()),
                fmt::format("{:.1f}", architecture.forward_flops() / 1e9), std::to_string(model.batch),
                model.measured
                    ? fmt::format("{} on {}", format_seconds(model.measured->seconds), model.measured->device)
                    : "-"});
  }
  fmt::print("{}\n", models.to_string());
  Table mixtures({"model with mixtures of experts", "summary", "layers", "with experts", "experts",
                  "of a token", "length of a sample", "samples a rank"},
                 {.left_columns = 2});
  for (const methods::moe::MixtureModel& model : methods::moe::mixture_models()) {
    std::vector<std::string> batches;
    for (const auto& [device, samples] : model.batches)
      batches.push_back(fmt::format("{} on {}", samples, device));
    mixtures.add(
        {std::string(model.name), std::string(model.summary), std::to_string(model.layers),
         std::to_string(model.mixtures()),
         model.experts > 0 ? std::to_string(model.experts) : fmt::format("{} a rank", model.experts_of_rank),
         std::to_string(model.choices), std::to_string(model.length),
         batches.empty() ? "--batch" : fmt::format("{}", fmt::join(batches, ", "))});
  }
  fmt::print("{}\n", mixtures.to_string());
  Table devices({"device", "summary", "fp32 TFLOP/s", "half TFLOP/s", "memory GB/s", "memory"},
                {.left_columns = 2});
  for (const zoo::Device& device : zoo::devices()) {
    devices.add({std::string(device.name), std::string(device.summary),
                 fmt::format("{:.1f}", device.single.flops_per_second / 1e12),
                 fmt::format("{:.0f}", device.half.flops_per_second / 1e12),
                 fmt::format("{:.0f}", device.bytes_per_second / 1e9), format_bytes(device.memory_bytes)});
  }
  fmt::print("{}", devices.to_string());
}

std::string describe(const Dimension& dimension) {
  return fmt::format(
      "{} x {}{}", dimension.size, dimension.name,
      dimension.oversubscription > 1 ? fmt::format(" ({:g}:1)", dimension.oversubscription) : "");
}

void list_clusters() {
  Table table({"cluster", "dimensions, inside out", "summary", "ranks"}, {.left_columns = 3});
  for (const ClusterPreset& preset : clusters()) {
    std::string dimensions;
    for (const Dimension& dimension : preset.cluster.dimensions)
      dimensions += (dimensions.empty() ? "" : ", ") + describe(dimension);
    table.add({preset.cluster.name, dimensions, std::string(preset.summary),
               std::to_string(preset.cluster.ranks())});
  }
  fmt::print("{}", table.to_string());
}

}  // namespace

void add_models_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("models", "List the models and devices that are known by name, or export one");
  CLI::App* const exporting = add_models_export(*command);
  command->callback([exporting] {
    if (!exporting->parsed()) list_models();
  });
}

void add_clusters_command(CLI::App& app) {
  app.add_subcommand("clusters", "List the clusters that are known by name")->callback(list_clusters);
}

}  // namespace dear::cli
