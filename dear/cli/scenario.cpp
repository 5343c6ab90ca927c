#include "dear/cli/scenario.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/dtype.h"
#include "dear/base/error.h"
#include "dear/cluster/presets.h"
#include "dear/workload/workload_file.h"
#include "dear/zoo/device.h"
#include "dear/zoo/make_workload.h"
#include "dear/zoo/models.h"

namespace dear::cli {
namespace {

constexpr std::string_view kUsualDevice = "a100";

struct Job {
  Workload workload;
  std::int64_t memory_bytes = 0;
  std::string origin;
};

// One that is there, or, so that it is missed by its name, one that cannot be anything else.
bool names_file(const std::string& text) {
  std::error_code ignored;
  return text.ends_with(".json") || std::filesystem::is_regular_file(text, ignored);
}

std::string device_for(const ScenarioOptions& options, const zoo::Model& model, const Cluster& cluster) {
  if (!options.device.empty()) return options.device;
  if (!cluster.device.empty()) return cluster.device;
  return std::string(model.measured ? model.measured->device : kUsualDevice);
}

Job job_of(const ScenarioOptions& options, const std::string& text, const Cluster& cluster) {
  if (names_file(text)) {
    if (!options.device.empty() || options.batch != 0 || options.sample_size != 0)
      throw ConfigError(
          fmt::format("'{}' is a workload file, whose times are fixed: --device, --batch and --size are for "
                      "models by name",
                      text));
    return {.workload = read_workload(text), .origin = "read from " + text};
  }
  const zoo::Model& model = zoo::find_model(text);
  const zoo::Device& device = zoo::find_device(device_for(options, model, cluster));
  const std::int64_t batch = options.batch != 0 ? options.batch : model.batch;
  const DType dtype = options.dtype.empty() ? model.dtype : parse_dtype(options.dtype);
  Workload workload =
      zoo::make_workload(model, device, {.batch = batch, .size = options.sample_size, .dtype = dtype});
  const bool measured = model.measured && model.measured->device == device.name && dtype == DType::f32;
  return {.workload = std::move(workload),
          .memory_bytes = device.memory_bytes,
          .origin = fmt::format("{} samples a rank on {} in {}, {}", batch, device.name, name_of(dtype),
                                measured ? "scaled to a measured iteration" : "by its roofline")};
}

// "a,b" are two; the comma of "bandwidth=1gbit,latency=50us" parts nothing.
std::vector<std::string> split(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    if (text.find('=') != std::string::npos) {
      parts.push_back(text);
      continue;
    }
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      parts.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

}  // namespace

void ScenarioOptions::add_to(CLI::App& command) {
  command
      .add_option("--model", models,
                  "Models by name (`dear models` lists them), or workload files, as `dear train --profile` "
                  "writes them")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("M[,M...]");
  command
      .add_option("--cluster,--network", clusters,
                  "Clusters by name (`dear clusters` lists them), cluster files, or flat networks (1gbit, "
                  "10gbe, 100gbib, or bandwidth=1gbit,latency=50us, alone in its option)")
      ->required()
      ->allow_extra_args(false)
      ->type_name("C[,C...]");
  command
      .add_option("--ranks", ranks, "Ranks of the job, or several numbers: 4,16,64; default: the cluster's")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N[,N...]");
  add_job_to(command);
}

void ScenarioOptions::add_job_to(CLI::App& command) {
  command
      .add_option("--device", device,
                  "Device that a model by name is built for; default: the cluster's, or the one on which the "
                  "model was measured")
      ->type_name("NAME");
  command.add_option("--batch", batch, "Samples on one rank; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("N");
  command
      .add_option("--size", sample_size, "Side of an image or length of a sequence; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("N");
  command
      .add_option(
          "--dtype", dtype,
          "Of parameters, gradients and activations: fp32, fp16, or bf16; default: bf16 for gpt2 and llama, "
          "with master parameters in fp32, and fp32 for other models")
      ->type_name("NAME");
}

void ModelOptions::add_to(CLI::App& command) {
  command
      .add_option("--algorithm", algorithm,
                  "How collectives travel: auto (the quickest for each size), ring, double-tree, "
                  "hierarchical, or nccl (a ring or a double tree, as NCCL chooses)")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--optimizer-states", optimizer_states,
                  "Values that the optimiser keeps for each parameter: 1 for momentum, 2 for Adam")
      ->check(CLI::Range(0, 8))
      ->type_name("N")
      ->capture_default_str();
}

Workload read_job(const ScenarioOptions& options, const std::string& model) {
  return job_of(options, model, Cluster{}).workload;
}

std::vector<study::Scenario> scenarios(const ScenarioOptions& options) {
  std::vector<study::Scenario> all;
  for (const std::string& model : options.models) {
    for (const std::string& text : split(options.clusters)) {
      std::vector<std::optional<int>> sizes(options.ranks.begin(), options.ranks.end());
      if (sizes.empty()) sizes.emplace_back();
      for (const std::optional<int>& ranks : sizes) {
        const Cluster cluster =
            find_cluster(text, ranks ? std::optional(*ranks * options.jobs) : std::nullopt);
        auto [workload, memory_bytes, origin] = job_of(options, model, cluster);
        all.push_back({.workload = std::move(workload),
                       .cluster = cluster,
                       .memory_bytes = memory_bytes,
                       .origin = std::move(origin)});
      }
    }
  }
  return all;
}

}  // namespace dear::cli
