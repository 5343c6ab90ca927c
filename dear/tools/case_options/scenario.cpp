#include "dear/tools/case_options/scenario.h"

#include <algorithm>

#include "dear/tools/options/option_adder.h"

namespace dear::cli {
namespace {

// Splits at commas: "a,b" are two texts. The comma of "bandwidth=1gbit,latency=50us" does not split.
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
  const OptionAdder add(command);
  add.list("--model", models, "M[,M...]",
           "Models by name (`dear models` lists them), or workload files, as `dear train --profile` "
           "writes them")
      ->required();
  add("--cluster,--network", clusters, "C[,C...]",
      "Clusters by name (`dear clusters` lists them), cluster files, or flat networks (1gbit, "
      "10gbe, 100gbib, or bandwidth=1gbit,latency=50us, alone in its option)")
      ->required()
      ->allow_extra_args(false);
  add.list("--ranks", ranks, "N[,N...]",
           "Ranks of the job, or several numbers: 4,16,64; default: the cluster's")
      ->check(CLI::Range(1, 1 << 20));
  add_job_to(command);
}

void ScenarioOptions::add_job_to(CLI::App& command) {
  const OptionAdder add(command);
  add("--device", model.device, "NAME",
      "Device that a model by name is built for; default: the cluster's, or the one on which the "
      "model was measured");
  add("--batch", model.batch, "N", "Samples on one rank; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  add("--size", model.sample_size, "N", "Side of an image or length of a sequence; default: the model's own")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  add("--dtype", model.dtype, "NAME",
      "Of parameters, gradients and activations: fp32, fp16, or bf16; default: fp32; for "
      "language models the "
      "half precision of the device, with master parameters in fp32, but where they were "
      "measured in fp32");
  add("--scale-compute", model.scale_compute, "FACTOR",
      "Multiply all times of computation: 0.05 for a device 20 times as fast as the one that a workload "
      "file was measured on")
      ->check(CLI::Range(1e-9, 1e9));
  command.add_flag(
      "--checkpoint-activations", model.checkpoint_activations,
      "Keep activations at the ends of segments only, and compute the rest again in the backward pass");
}

void add_compression_to(CLI::App& command, cases::CompressionNames& names) {
  const OptionAdder add(command);
  add("--compress", names.compressions, "SPEC",
      "Look at gradients that travel compressed beside dense ones: top-k:0.01,ef or another scheme "
      "of docs/compression.md; once for each compression")
      ->allow_extra_args(false);
  add.with_default(
      "--codec", names.codec, "NAME",
      "How fast codecs are: roofline (by the memory of the device), measured (on this machine), none "
      "(in no time), or auto (roofline where there is a device, else measured); with ,beside on cores "
      "of their own, else in turns with computation");
  add.with_default("--union-density", names.union_density, "PART",
                   "Part of a gradient's elements that is not zero on one rank at least, for sketches");
}

void ModelOptions::add_algorithm_to(CLI::App& command) {
  const OptionAdder add(command);
  add.with_default(
      "--algorithm", algorithm, "NAME",
      "How collectives travel: auto (the quickest for each size), ring, double-tree, "
      "hierarchical, nccl (a ring or a double tree, as NCCL chooses), or themis (in chunks, over "
      "all dimensions at once)");
}

void ModelOptions::add_to(CLI::App& command) {
  const OptionAdder add(command);
  add_algorithm_to(command);
  add.with_default(
         "--optimizer-states", optimizer_states, "N",
         "Values in fp32 that the optimiser keeps for each parameter: 2 for Adam and AdamW, 1 for momentum, "
         "0 for plain SGD")
      ->check(CLI::Range(0, 8));
  add.with_default(
         "--accumulate", micro_batches, "N",
         "Passes forward and backward in an iteration, each of --batch samples, whose gradients add "
         "up before "
         "they travel")
      ->check(CLI::Range(1, 65'536));
  add_compression_to(command, compression);
}

Workload read_job(const ScenarioOptions& options, const std::string& model) {
  return cases::find_workload(model, options.model);
}

cases::ScenarioOptions asked_by(const ScenarioOptions& options) {
  return {.models = {options.models.begin(), options.models.end()},
          .clusters = split(options.clusters),
          .ranks = options.ranks,
          .jobs = options.jobs,
          .model = options.model};
}

std::vector<cases::Scenario> scenarios(const ScenarioOptions& options) {
  return cases::scenarios(asked_by(options));
}

}  // namespace dear::cli
