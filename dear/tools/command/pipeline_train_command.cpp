#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/pipeline_training.h"
#include "dear/systems/train_command/training_module.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/saving_options.h"
#include "dear/tools/command/train_options.h"
#include "dear/tools/command/train_report.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/progress.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"

namespace dear::cli {
namespace {

using train_command::PipelineJob;
using train_command::PipelinePlanned;
using train_command::PipelineTrained;

// As the user wrote them.
struct Arguments {
  PipelineJob job{.gpt = {.steps = 100}};
  std::string data = "/usr/share/common-licenses", timeout = "120s";
  std::optional<std::int64_t> workers, threads, stages_per_worker;
  std::optional<std::string> network;
  std::optional<double> learning_rate, clip;
  SavingOptions saving;
  std::string json, output, trace;
};

// Checked: no later step refuses any of them, but for a plan, which the model has to be known for.
struct Settings {
  PipelineJob job;
  int workers = 1, threads = 1;
  double timeout_seconds = 0;
  std::optional<ModelledNetwork> network{};
};

void check_names(const CLI::App& command, const Arguments& arguments, PipelineJob& job) {
  namespace pipeline = methods::pipeline;
  if (!job.plan_file.empty())
    refuse_beside(
        "--plan", command,
        {"--planner", "--schedule", "--compress", "--ratio", "--stages-per-worker", "--micro-batches"});
  parse_option("--planner", [&] { return pipeline::find_plan_method(job.planner); });
  const auto schedule =
      parse_option("--schedule", [&] { return pipeline::find_schedule_kind(job.schedule); });
  const bool several = schedule == pipeline::ScheduleKind::interleaved;
  const std::int64_t stages = arguments.stages_per_worker.value_or(several ? 2 : 1);
  check_range("--stages-per-worker", stages, several ? 2 : 1, several ? 64 : 1);
  job.stages_per_worker = static_cast<int>(stages);
  const auto rule =
      parse_option("--compress", [&] { return pipeline::find_compression_rule(job.compression); });
  parse_option("--ratio", [&] { return pipeline::check({.rule = rule, .ratio = job.ratio}), 0; });
  job.learning_rate = arguments.learning_rate.value_or(checked_optimizer(job.optimizer).learning_rate);
  check_learning_rate(job.learning_rate);
  job.clip = arguments.clip.value_or(0);
  if (arguments.clip && (!(job.clip > 0) || !std::isfinite(job.clip)))
    throw ConfigError(fmt::format("--clip is {}: give the largest norm of gradients, above 0", job.clip));
}

Settings checked(const CLI::App& command, const Arguments& arguments, const LaunchEnvironment& environment) {
  Settings settings{.job = arguments.job};
  PipelineJob& job = settings.job;
  settings.workers = checked_workers(arguments.workers, 2, environment);
  check_range("--replicas", job.replicas, 1, settings.workers);
  if (settings.workers % job.replicas != 0)
    throw ConfigError(fmt::format("--replicas is {}, and there are {} workers: give a divisor", job.replicas,
                                  settings.workers));
  if (arguments.network) {
    settings.network = checked_network(*arguments.network, "", settings.workers);
    const auto* const pairs = std::get_if<PairCluster>(&*settings.network);
    if (pairs == nullptr)
      throw ConfigError(
          fmt::format("--network: '{}' has one link for all, and a pipeline has one for each pair of "
                      "workers: name a cluster of `dear "
                      "pipeline clusters`, or a file that it or `dear bench links` wrote",
                      *arguments.network));
    std::vector<int> first_replica;
    for (int worker = 0; worker < settings.workers; worker += job.replicas) first_replica.push_back(worker);
    job.cluster = part_of(*pairs, first_replica);
  } else if (environment.local_size != environment.size) {  // else shared memory carries the messages
    const bool mpi = environment.launcher == "Open MPI" || environment.launcher == "MPICH";
    job.gpt.backend = mpi ? "mpi-messages" : "gloo";
  }
  check(job.gpt);
  check_range("--micro-batches", job.micro_batches, 1, 4096);
  check_names(command, arguments, job);
  const int parts = job.plan_file.empty() ? job.micro_batches : parse_option("--plan", [&] {
    return methods::pipeline::read_micro_batches(job.plan_file);
  });
  if (parts < 1 || job.gpt.batch % (parts * job.replicas) != 0)
    throw ConfigError(fmt::format("--batch is {}, which {} micro-batches{} do not divide: give a multiple",
                                  job.gpt.batch, parts,
                                  job.replicas == 1 ? "" : fmt::format(" of {} replicas", job.replicas)));
  settings.threads = checked_threads(arguments.threads, settings.workers, environment, this_host());
  settings.timeout_seconds = checked_timeout(arguments.timeout, "120s");
  job.saving = checked_saving(arguments.saving);
  check_outputs({{"--json", arguments.json}, {"--output", arguments.output}, {"--trace", arguments.trace}});
  return settings;
}

void report(const Arguments& arguments, const PipelineTrained& trained, const Group& group) {
  say(to_text(trained) + network_line(group.modelled_network(), group.description()));
  write_checked([&] {
    if (!arguments.json.empty())
      write_results(arguments.json, to_json(trained), {.communication = !trained.network.empty()});
    if (!arguments.output.empty()) os::write_file_atomically(arguments.output, trained.planned.plan);
    if (trained.trace) write_chrome_trace(*trained.trace, arguments.trace);
  });
  for (const auto& [what, path] :
       {std::pair("results", &arguments.json), std::pair("plan, for --plan", &arguments.output),
        std::pair("trace of all workers, for https://ui.perfetto.dev", &arguments.trace)})
    if (!path->empty()) say(fmt::format("{}: {}\n", what, *path));
  if (trained.interrupted)
    say(fmt::format("interrupted after {} of {} steps\n", trained.resumed_at + std::ssize(trained.losses),
                    arguments.job.gpt.steps));
  if (!std::isfinite(trained.losses.back())) throw Error("the last loss is no finite number: lower --lr");
  if (!trained.unsaved.empty()) throw Error(trained.unsaved);
  if (trained.interrupted) throw ExitStatus{kExitInterrupted};
}

void run_rank(const Arguments& arguments, const Settings& settings, const train_command::Corpus& corpus,
              const Group& group, const std::string& said) {
  const bool first = group.rank() == 0;
  Progress progress(std::cout, {.steps = settings.job.gpt.steps,
                                .characters_per_step = settings.job.gpt.batch * settings.job.gpt.context,
                                .terminal = ::isatty(STDOUT_FILENO) == 1});
  const PipelineTrained trained = train_command::training_module().train_pipeline(
      settings.job, corpus, group,
      {.planned =
           [&](const PipelinePlanned& planned) {
             if (first) say(to_text(planned, settings.job) + said + "\n");
           },
       .stepped =
           [&](std::int64_t done, double loss, double seconds) {
             if (first) progress.update("pipeline", done, loss, seconds);
           },
       .say = [](const std::string& sentence) { say(sentence + "\n"); }});
  if (first) report(arguments, trained, group);
}

void run_train(const CLI::App& command, const Arguments& arguments) {
  if (const std::string missing = train_command::training_missing(); !missing.empty())
    throw ConfigError(missing);
  Settings settings;
  train_command::Corpus corpus;
  run_as_ranks(
      "dear pipeline train",
      [&](const LaunchEnvironment& environment) {
        settings = checked(command, arguments, environment);
        settings.job.record_trace = !arguments.trace.empty();
        corpus = train_command::read_corpus(arguments.data, settings.job.gpt.context + 2);
        if (environment.size > 1 || settings.workers == 1)  // this process is a rank
          train_command::training_module().set_compute_threads(settings.threads);
        return Ranks{
            .workers = settings.workers,
            .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                      .network = settings.network,
                      .backend = settings.job.gpt.backend},
            .settings = fmt::format("{}, data {}", settings.job.text(), Digest().add(corpus.text).hex())};
      },
      [&](const Group& group, const std::string& said) {
        run_rank(arguments, settings, corpus, group, said);
      });
}

}  // namespace

void add_pipeline_train(CLI::App& pipeline) {
  CLI::App* const command = pipeline.add_subcommand(
      "train", "Train a small GPT on the characters of a text, whose layers lie on the workers");
  const auto arguments = std::make_shared<Arguments>();
  PipelineJob& job = arguments->job;
  const OptionAdder add(*command);
  add.with_default("--data", arguments->data, "PATH",
                   "File, or folder with files, whose characters to learn");
  add("--workers", arguments->workers, "N",
      "Ranks on this host (default: 2; under a launcher: all of its ranks)");
  add("--network", arguments->network, "CLUSTER",
      "Model links: a cluster with a link for each pair and a device for each worker, a name or file of "
      "`dear pipeline "
      "clusters`; its links are planned for (default: the real ones, planned for as all alike)");
  add("--plan", job.plan_file, "FILE", "A plan that --output wrote, also after an edit, instead of planning");
  add.with_default("--planner", job.planner, "NAME",
                   "op-fence, plain-dp, equal-number or equal-work, as of `dear pipeline plan`");
  add.with_default(
      "--schedule", job.schedule, "NAME",
      "gpipe, 1f1b, zb-h1 (gradients of weights later) or interleaved (several stages a worker)");
  add("--stages-per-worker", arguments->stages_per_worker, "N", "With schedule interleaved")
      ->default_str("2");
  add.with_default(
      "--replicas", job.replicas, "N",
      "Pipelines beside each other: so many workers in a row have the same stages, each a part of "
      "the batch, and the means of their gradients");
  add.with_default("--micro-batches", job.micro_batches, "N", "Parts of the batch, a divisor of it");
  add.with_default("--compress", job.compression, "NAME",
                   "Of activations and gradients on links: none, top-k, or ada-top-k (more on slower links)");
  add.with_default("--ratio", job.ratio, "R", "With compression, elements there are to those that travel");
  add.with_default("--steps", job.gpt.steps, "K", "Optimiser steps");
  add.with_default("--batch", job.gpt.batch, "N", "Samples in a step, of all workers");
  add.with_default("--layers", job.gpt.layers, "N", "Transformer blocks, of two operators each");
  add.with_default("--width", job.gpt.width, "N", "Size of the hidden state");
  add.with_default("--heads", job.gpt.heads, "N", "Attention heads; a divisor of the width");
  add.with_default("--context", job.gpt.context, "N", "Characters in a sample");
  add.with_default("--seed", job.gpt.seed, "N", "Of the first parameters and the batches");
  add("--lr", arguments->learning_rate, "RATE", "Learning rate (default by optimiser)");
  add.with_default(
      "--optimizer", job.optimizer, "NAME",
      names_in(train_command::optimizers()) + "; each worker updates the parameters of its layers");
  add("--clip", arguments->clip, "NORM",
      "Scale gradients so that the norm of those of all workers is at most this (default: as they are)");
  add_saving_options(*command, arguments->saving);
  add("--threads", arguments->threads, "N",
      "Of each worker (default: OMP_NUM_THREADS, else the cores shared among the workers)");
  add("--json", arguments->json, "FILE", "Write losses, times and the plan");
  add("--output", arguments->output, "FILE", "Write the plan to FILE, for --plan");
  add("--trace", arguments->trace, "FILE", "Write a Chrome/Perfetto trace of all workers");
  add.with_default("--timeout", arguments->timeout, "TIME", "How long to wait for another worker");
  command->callback([arguments, command] { run_train(*command, *arguments); });
}

}  // namespace dear::cli
