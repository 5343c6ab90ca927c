#include "studies/lancet/iterations.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/passes.h"
#include "dear/platform/cluster/presets.h"

namespace dear::studies::lancet {

using methods::moe::all_passes;
using methods::moe::find_mixture_model;
using methods::moe::MixtureJob;
using methods::moe::MixtureModel;
using methods::moe::Passed;
using methods::moe::Passes;
namespace {

// Every iteration waits for parameters that the one before gathers: the last of these is as any later one.
constexpr std::int64_t kIterations = 4;

zoo::Device device_of(const Cluster& cluster, const Assumption& assumption) {
  zoo::Device device = zoo::find_device(cluster.device);
  if (assumption.shortened)
    device.single = {.flops_per_second = device.half.flops_per_second / 2,
                     .convolution_efficiency = device.half.convolution_efficiency,
                     .matmul_efficiency = device.half.matmul_efficiency};
  for (zoo::Arithmetic* const arithmetic : {&device.single, &device.half})
    arithmetic->flops_per_second *= assumption.pace;
  device.bytes_per_second *= assumption.pace;
  return device;
}

}  // namespace

const std::vector<Assumption>& assumptions() {
  static const std::vector<Assumption> kTable{
      {.name = "as tabled",
       .says = "fp32 at the pace of the table of devices, batches of the published configurations, mixtures "
               "in the second, fourth, ... layer"},
      {.name = "16 bits", .says = "parameters, activations and what travels have 16 bits", .half = true},
      {.name = "tf32", .says = "products are TF32, all else fp32 (A100 alone)", .shortened = true},
      {.name = "half pace", .says = "kernels take twice as long as by the table", .pace = 0.5},
      {.name = "batches of the text",
       .says = "the two models have each other's batches, as the paper's text has them (A100 alone)",
       .batches_exchanged = true},
      {.name = "first layer", .says = "mixtures are in the first, third, ... layer", .first_mixture = 0}};
  return kTable;
}

bool concerns(const Assumption& assumption, std::string_view device) {
  return device == "a100" || (!assumption.shortened && !assumption.batches_exchanged);
}

bool Iteration::has(std::string_view name) const {
  return std::any_of(passes.begin(), passes.end(), [&](const PassTime& one) { return one.passes == name; });
}

const PassTime& Iteration::by(std::string_view name) const {
  const auto found =
      std::find_if(passes.begin(), passes.end(), [&](const PassTime& one) { return one.passes == name; });
  if (found == passes.end()) throw ConfigError(fmt::format("{} was not played by '{}'", model, name));
  return *found;
}

double Iteration::gain() const {
  return std::min(by("unoptimised").seconds, by("experts").seconds) / by("lancet").seconds;
}

double Iteration::exposed_less(std::string_view than) const {
  return 1 - by("lancet").exposed_seconds / by(than).exposed_seconds;
}

Iteration iteration_of(const std::string& name, const std::string& cluster_name, Gate gate, int ranks,
                       const Assumption& assumption, bool each_alone) {
  const Cluster cluster = find_cluster(cluster_name, ranks);
  const zoo::Device device = device_of(cluster, assumption);
  MixtureModel model = find_mixture_model(name);
  model.first_mixture = assumption.first_mixture;
  std::int64_t batch = batch_of(model, device.name);
  if (assumption.batches_exchanged)
    batch = batch_of(find_mixture_model(name == "gpt2-s-moe" ? "gpt2-l-moe" : "gpt2-s-moe"), device.name);
  const MixtureJob job = methods::moe::make_job(
      model, device, cluster,
      {.batch = batch, .dtype = assumption.half ? device.half_type : DType::f32, .gate = gate});
  Iteration iteration{.model = name,
                      .cluster = cluster_name,
                      .gate = gate,
                      .ranks = ranks,
                      .assumption = assumption.name,
                      .batch = batch,
                      .all_to_all_seconds = job.all_to_all_seconds,
                      .expert_seconds = job.expert_seconds};
  for (const Passes& passes : all_passes()) {
    if (passes.name == "partition" && !each_alone) continue;
    const Passed passed = methods::moe::run(job.graph, passes, job.part_seconds, {.iterations = kIterations});
    iteration.passes.push_back({.passes = std::string(passes.name),
                                .seconds = passed.times.iteration_seconds,
                                .compute_seconds = passed.times.compute_seconds,
                                .exposed_seconds = passed.times.exposed_seconds,
                                .parts = passed.most_parts()});
  }
  return iteration;
}

std::vector<Iteration> iterations_of(const IterationOptions& options, const studies::Progress& progress) {
  std::vector<Iteration> all;
  studies::Pieces pieces(
      progress, "iterations",
      options.clusters.size() * options.models.size() * options.gates.size() * options.ranks.size());
  for (const std::string& cluster : options.clusters)
    for (const std::string& model : options.models)
      for (const Gate gate : options.gates)
        for (const int ranks : options.ranks) {
          const bool sampled = ranks == options.sampled_ranks;
          for (std::size_t i = 0; i < (sampled ? options.assumptions : 1); ++i) {
            const Assumption& assumption = assumptions()[i];
            if (concerns(assumption, find_cluster(cluster, ranks).device))
              all.push_back(
                  iteration_of(model, cluster, gate, ranks, assumption, sampled && gate == Gate::in_order));
          }
          pieces.done_one();
        }
  return all;
}

std::vector<Iteration> iterations_by_pace(const IterationOptions& options,
                                          const studies::Progress& progress) {
  std::vector<Iteration> all;
  studies::Pieces pieces(progress, "paces", options.clusters.size() * options.models.size());
  for (const std::string& cluster : options.clusters)
    for (const std::string& model : options.models) {
      for (const double pace : options.paces)
        all.push_back(iteration_of(model, cluster, options.gates.front(), options.sampled_ranks,
                                   {.name = fmt::format("{:g}", pace), .says = {}, .pace = pace}, false));
      pieces.done_one();
    }
  return all;
}

}  // namespace dear::studies::lancet
