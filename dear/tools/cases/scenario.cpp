#include "dear/tools/cases/scenario.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/tools/cases/mixture_cases.h"
#include "dear/workload/layers/checkpointing.h"
#include "dear/workload/layers/workload_file.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace dear::cases {
namespace {

constexpr std::string_view kUsualDevice = "a100";
constexpr int kMostRanks = 1 << 30;

struct Job {
  Workload workload;
  std::int64_t memory_bytes = 0;
  std::string device{};
  std::optional<ModelAsBuilt> model{};
  std::string origin;
};

// One that is there, or, so that it is missed by its name, one that cannot be anything else.
bool is_file(const std::string& text) {
  std::error_code ignored;
  return text.ends_with(".json") || std::filesystem::is_regular_file(text, ignored);
}

void refuse_options_of_names(const std::string& what, const ModelOptions& options) {
  if (!options.device.empty() || options.batch != 0 || options.sample_size != 0 || !options.dtype.empty())
    throw ConfigError(fmt::format(
        "{} has times that are fixed: device, batch, size and dtype are for models by name", what));
}

// Is of a device in the table; 0 for any other.
std::int64_t memory_of(std::string_view device) {
  const auto& all = zoo::devices();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const zoo::Device& one) { return one.name == device; });
  return found != all.end() ? found->memory_bytes : 0;
}

// A job whose times are fixed, on the device of the cluster.
Job fixed_job(Workload workload, const std::string& what, std::string origin, const ModelOptions& options,
              const Cluster& cluster) {
  refuse_options_of_names(what, options);
  const std::string_view theirs = device_name(workload.device);
  if (!cluster.device.empty() && !theirs.empty() && theirs != cluster.device && !options.scale_compute)
    throw ConfigError(fmt::format(
        "{} has times of {}, but cluster '{}' has {}: say with --scale-compute (scale_compute) how many "
        "times as "
        "long computation takes there, such as 0.05, or profile for it with `dear profile --device {}`",
        what, workload.device, cluster.name, cluster.device, cluster.device));
  if (!cluster.device.empty() && theirs.empty() && !options.scale_compute)
    origin += fmt::format(", of an unknown device, taken for {}", cluster.device);
  const std::int64_t memory_bytes = memory_of(cluster.device.empty() ? theirs : cluster.device);
  return {.workload = std::move(workload), .memory_bytes = memory_bytes, .origin = std::move(origin)};
}

Job job_by_name(const std::string& name, const ModelOptions& options, const Cluster& cluster) {
  if (is_mixture(name))
    throw ConfigError(fmt::format(
        "{} has mixtures of experts, whose tokens travel in all-to-alls that a workload does not have: only "
        "`dear simulate` and `dear plan` take it",
        name));
  const zoo::Model& model = zoo::find_model(name);
  const zoo::Device& device =
      zoo::find_device(device_for(options, cluster, model.measured ? model.measured->device : ""));
  const std::int64_t batch = options.batch != 0 ? options.batch : model.batch;
  const DType dtype = options.dtype.empty() ? zoo::usual_dtype(model, device) : parse_dtype(options.dtype);
  Workload workload = zoo::make_workload(model, device,
                                         {.batch = batch,
                                          .size = options.sample_size,
                                          .dtype = dtype,
                                          .optimizer_states = options.optimizer_states});
  const bool measured = model.measured && model.measured->device == device.name && dtype == DType::f32;
  return {.workload = std::move(workload),
          .memory_bytes = device.memory_bytes,
          .device = std::string(device.name),
          .model = ModelAsBuilt{.name = std::string(model.name),
                                .size = options.sample_size != 0 ? options.sample_size : model.size,
                                .batch = batch},
          .origin = fmt::format("{} samples a rank on {} in {}, {}", batch, device.name, name_of(dtype),
                                measured ? "scaled to a measured iteration" : "by its roofline")};
}

Job job_of(const ModelName& model, const ModelOptions& options, const Cluster& cluster) {
  if (const auto* const workload = std::get_if<Workload>(&model)) {
    return fixed_job(*workload, fmt::format("'{}' is a workload and", workload->name), "given as a workload",
                     options, cluster);
  }
  const auto& text = std::get<std::string>(model);
  if (is_file(text)) {
    Workload workload = read_workload(text);
    std::string origin = workload.device.empty() ? fmt::format("read from {}", text)
                                                 : fmt::format("on {}, read from {}", workload.device, text);
    return fixed_job(std::move(workload), fmt::format("'{}' is a workload file and", text), std::move(origin),
                     options, cluster);
  }
  return job_by_name(text, options, cluster);
}

// With what is made of any job.
Job adapted(Job job, const ModelOptions& options) {
  if (const std::optional<double>& factor = options.scale_compute) {
    if (!(*factor > 0) || !std::isfinite(*factor))
      throw ConfigError(
          fmt::format("computation cannot take {} times as long: give a number above 0", *factor));
    for (Layer& layer : job.workload.layers) {
      layer.forward_seconds *= *factor;
      layer.backward_seconds *= *factor;
    }
    job.workload.update_seconds *= *factor;
    job.origin += fmt::format(", times of computation multiplied by {:g}", *factor);
  }
  if (options.checkpoint_activations) {
    job.workload = with_activation_checkpointing(std::move(job.workload));
    job.origin += ", activations checkpointed";
  }
  return job;
}

std::optional<int> all_ranks(const std::optional<int>& ranks, int jobs) {
  if (!ranks) return std::nullopt;
  if (*ranks > kMostRanks / jobs)
    throw ConfigError(
        fmt::format("{} jobs of {} ranks are too many: {} ranks at most", jobs, *ranks, kMostRanks));
  return *ranks * jobs;
}

}  // namespace

std::vector<Scenario> scenarios(const ScenarioOptions& options) {
  if (options.jobs < 1) throw ConfigError(fmt::format("there cannot be {} jobs: one at least", options.jobs));
  std::vector<std::optional<int>> sizes(options.ranks.begin(), options.ranks.end());
  if (sizes.empty()) sizes.emplace_back();
  std::vector<Scenario> all;
  for (const ModelName& model : options.models) {
    for (const std::string& text : options.clusters) {
      for (const std::optional<int>& ranks : sizes) {
        const Cluster cluster = find_cluster(text, all_ranks(ranks, options.jobs));
        auto [workload, memory_bytes, device, built, origin] =
            adapted(job_of(model, options.model, cluster), options.model);
        all.push_back({.workload = std::move(workload),
                       .cluster = cluster,
                       .memory_bytes = memory_bytes,
                       .device = std::move(device),
                       .model = std::move(built),
                       .checkpointed = options.model.checkpoint_activations,
                       .origin = std::move(origin)});
      }
    }
  }
  return all;
}

Workload find_workload(const ModelName& model, const ModelOptions& options) {
  return adapted(job_of(model, options, Cluster{}), options).workload;
}

std::string device_for(const ModelOptions& options, const Cluster& cluster, std::string_view otherwise) {
  if (!options.device.empty()) return options.device;
  if (!cluster.device.empty()) return cluster.device;
  return std::string(otherwise.empty() ? kUsualDevice : otherwise);
}

charts::BarPanel panel_of(std::string_view model, const Cluster& cluster, int ranks) {
  return {.title = fmt::format("{} on {}, {}", model, cluster.name, counted(index_of(ranks), "rank")),
          .bars = {}};
}

std::string chart_of(const std::vector<charts::BarPanel>& panels, const std::string& title,
                     const std::string& mark, const std::string& interval) {
  return charts::bar_chart(panels, {.title = title,
                                    .first = "computation",
                                    .second = "exposed communication",
                                    .mark = mark,
                                    .interval = interval,
                                    .format = format_seconds});
}

}  // namespace dear::cases
