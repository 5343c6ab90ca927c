#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/systems/train_command/compression_plot.h"
#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/optimizers.h"
#include "dear/systems/train_command/result_json.h"
#include "dear/systems/train_command/train.h"
#include "dear/systems/train_command/training_module.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/saving_options.h"
#include "dear/tools/command/train_options.h"
#include "dear/tools/command/train_report.h"
#include "dear/tools/command/tuning_table.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/progress.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"
#include "dear/workload/layers/workload_file.h"

namespace dear::cli {
namespace {

std::string optimizer_of(const TrainSettings& settings) {
  return settings.kfac ? fmt::format("{} ({})", settings.optimizer, settings.kfac->text())
                       : settings.optimizer;
}

std::string heading(const TrainSettings& settings, const train_command::Corpus& corpus) {
  return fmt::format(
      "training a GPT of {} parameters ({} layer{}, width {}, context {}) on {} characters of {} kinds\n"
      "{} worker{}, {} thread{} for each, {} characters in a step, optimiser {}, fusion {}{}{}{}\n",
      with_separators(train_command::training_module().parameter_count(settings, corpus)),
      settings.job.layers, settings.job.layers == 1 ? "" : "s", settings.job.width, settings.job.context,
      with_separators(static_cast<std::int64_t>(corpus.text.size())), corpus.vocabulary.size(),
      settings.workers, settings.workers == 1 ? "" : "s", settings.threads, settings.threads == 1 ? "" : "s",
      with_separators(settings.characters_per_step()), optimizer_of(settings), settings.buckets.text(),
      settings.moe ? ", " + settings.moe->text() : "",
      settings.job.one_copy ? ", one copy of the parameters" : "",
      settings.compressions.front() && !settings.compares_compressions
          ? fmt::format(", gradients travel as {}", train_command::text_of(settings.compressions.front()))
          : "");
}

std::string gradients_of(const TrainSettings& settings) {
  std::vector<std::string> texts;
  for (const auto& compression : settings.compressions) texts.push_back(train_command::text_of(compression));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string common_settings(const TrainSettings& settings, const train_command::Corpus& corpus) {
  return fmt::format(
      "policies {}, compared {}, gradients {}, fusion {}, network {}, backend {}, reproducible {}, one copy "
      "{}, steps {}, "
      "batch {}, "
      "layers {}, width "
      "{}, heads {}, context {}, "
      "seed {}, verify {}, "
      "optimiser {}, lr {}, data {}, trace {}, profile {}, metrics {}, saved {} in {}, resumed {}, model {}",
      fmt::join(settings.policies, " "), settings.compare, gradients_of(settings), settings.buckets.text(),
      settings.network ? name_of(*settings.network) : "real",
      settings.job.backend.empty() ? "chosen" : settings.job.backend, settings.job.reproducible,
      settings.job.one_copy, settings.job.steps, settings.job.batch, settings.job.layers, settings.job.width,
      settings.job.heads, settings.job.context, settings.job.seed, settings.job.verify,
      optimizer_of(settings), settings.learning_rate, Digest().add(corpus.text).hex(),
      !settings.trace.empty(), !settings.profile.empty(), !settings.metrics.empty(), settings.saving.every,
      settings.saving.directory, settings.saving.resume, settings.moe ? settings.moe->text() : kGpt);
}

Modelled modelled_in(const train_command::TrainResult& run) {
  return {.communication = !run.network.empty()};
}

void write_tuning(const TrainSettings& settings, const train_command::TrainResult& run) {
  const auto write = [](const char* what, const std::string& path, const auto& content) {
    if (path.empty()) return;
    os::write_file_atomically(path, content());
    say(fmt::format("{}: {}\n", what, path));
  };
  write("trials and choice", settings.tuning_json,
        [&] { return with_origin(to_json(run.tuning.value()), modelled_in(run)); });
  write("picture", settings.tuning_plot, [&] { return plot(run.tuning.value()); });
  write("schedule of the choice, for dear train --schedule", settings.tuned_schedule, [&] {
    return to_json(ScheduleFile{.model = run.tuning->model,
                                .cluster = run.tuning->cluster,
                                .ranks = run.workers,
                                .policy = run.policy,
                                .buckets = run.buckets.value()});
  });
}

void write_files(const TrainSettings& settings, const train_command::Trained& trained) {
  const std::vector<train_command::TrainResult>& runs = trained.runs;
  if (!settings.json.empty()) {
    write_results(settings.json,
                  trained.comparison ? to_json(runs, *trained.comparison) : to_json(runs.front()),
                  modelled_in(runs.front()));
    say(fmt::format("results: {}\n", settings.json));
  }
  if (!settings.plot.empty()) {
    charts::write_picture(settings.plot, train_command::plot_of_compressions(runs));
    say(fmt::format("loss against bytes and seconds: {}\n", settings.plot));
  }
  for (const auto& [policy, trace] : trained.traces) {
    const std::string file = settings.trace_of(policy);
    write_chrome_trace(trace, file);
    say(fmt::format("trace of policy {}, all ranks: {} (open it at https://ui.perfetto.dev)\n", policy,
                    file));
  }
  if (!settings.metrics.empty()) say(fmt::format("metrics of each step, rank 0: {}\n", settings.metrics));
  if (settings.job.tune) write_tuning(settings, runs.front());
  if (!settings.profile.empty() && runs.back().profile) {
    write_workload(runs.back().profile.value(), settings.profile);
    say(fmt::format("profile of policy {}, rank 0: {} (for dear simulate --model)\n", runs.back().policy,
                    settings.profile));
  }
}

// "interrupted after 1,210 of 3,000 steps"
std::string interruption(const TrainSettings& settings, const train_command::Trained& trained) {
  const bool unrecorded = settings.compare && !(settings.trace.empty() && settings.profile.empty());
  return fmt::format("interrupted after {} of {} steps{}{}\n", with_separators(trained.runs.front().steps),
                     with_separators(settings.job.steps), settings.compare ? " of each policy" : "",
                     unrecorded ? "; nothing was recorded, for that comes after them" : "");
}

void report(const TrainSettings& settings, const train_command::Trained& trained, const Group& group) {
  const std::vector<train_command::TrainResult>& runs = trained.runs;
  say("\n" + (settings.compares_compressions ? table_of_compressions(runs, *trained.comparison)
              : trained.comparison           ? to_text(runs, *trained.comparison)
                                             : to_text(runs.front())));
  for (const train_command::TrainResult& run : runs)
    if (run.moe)
      say((runs.size() == 1 ? "" : fmt::format("policy {}: ", run.policy)) +
          train_command::text_of(*run.moe));
  for (const train_command::TrainResult& run : runs)
    if (const std::string text = train_command::text_of(run.kfac); !text.empty())
      say(runs.size() == 1 ? text + "\n" : fmt::format("policy {}: {}\n", run.policy, text));
  if (settings.job.tune) say("\n" + table_of(runs.front().tuning.value()) + "\n");
  say(network_line(group.modelled_network(), group.description()));
  if (settings.sample > 0) {
    say(fmt::format("\n{} characters from the model trained last:\n{}\n\n", settings.sample,
                    train_command::printable(runs.back().sample)));
  }
  write_checked([&] { write_files(settings, trained); });
  if (trained.interrupted) say(interruption(settings, trained));
  const auto fail = [&](const std::string& why) {
    std::cerr << fmt::format("{}: {}\n", settings.command, why);
    throw ExitStatus{kExitFailure};
  };
  for (const train_command::TrainResult& run : runs) {
    if (const std::string why = wrong_losses(run); !why.empty()) fail(why);
    if (!run.unsaved.empty()) fail(run.unsaved);
    if (run.digest != runs.front().digest && !settings.compares_compressions)
      fail(fmt::format("the parameters of policy {} differ from those of {}", run.policy,
                       runs.front().policy));
  }
  if (trained.interrupted) throw ExitStatus{kExitInterrupted};
}

train_command::Trained train_with_progress(const TrainSettings& settings, const train_command::Corpus& corpus,
                                           const Group& group) {
  // A rate of characters is shown for one policy alone: policies that are compared differ in their speed.
  Progress progress(std::cout,
                    {.steps = settings.job.steps * static_cast<std::int64_t>(settings.policies.size()),
                     .characters_per_step = settings.compare ? 0 : settings.characters_per_step(),
                     .terminal = ::isatty(STDOUT_FILENO) == 1});
  return train_command::train(
      settings, {.traces = !settings.trace.empty(), .profile = !settings.profile.empty()}, corpus, group,
      [&](const std::string& label, std::int64_t done, double loss, double seconds) {
        if (group.rank() == 0) progress.update(label, done, loss, seconds);
      },
      [](const std::string& sentence) { say(sentence + "\n"); });
}

void run_rank(const TrainSettings& settings, const train_command::Corpus& corpus, const Group& group,
              const std::string& said) {
  if (group.rank() == 0) say(heading(settings, corpus) + said + "\n");
  const train_command::Trained trained = train_with_progress(settings, corpus, group);
  if (group.rank() == 0) report(settings, trained, group);
}

void run_train_command(const TrainOptions& options) {
  if (const std::string missing = train_command::training_missing(); !missing.empty())
    throw ConfigError(missing);
  TrainSettings settings;
  train_command::Corpus corpus;
  run_as_ranks(
      options.command,
      [&](const LaunchEnvironment& environment) {
        settings = check(options, environment, this_host());
        corpus = train_command::read_corpus(settings.data, settings.job.context + 2);
        if (environment.size > 1 || settings.workers == 1)  // this process is a rank
          train_command::training_module().set_compute_threads(settings.threads);
        return Ranks{.workers = settings.workers,
                     .bind = settings.bind,
                     .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                               .network = settings.network,
                               .grid = settings.grid,
                               .backend = settings.job.backend,
                               .reproducible = settings.job.reproducible},
                     .settings = common_settings(settings, corpus)};
      },
      [&](const Group& group, const std::string& said) { run_rank(settings, corpus, group, said); });
}

void add_job_options(CLI::App& command, TrainOptions& options) {
  const OptionAdder add(command);
  add.with_default("--data", options.data, "PATH", "File, or folder with files, whose characters to learn");
  add("--workers", options.workers, "N",
      "Ranks on this host (default: 2; under a launcher: all of its ranks)");
  add.with_default("--policy", options.policy, "NAME",
                   "How to overlap communication: " + names_in(training_policies()) +
                       ", or auto: the first steps choose, and rank 0 says why (default dear)");
  add("--compress", options.compress, "SPEC",
      "Send less of each gradient: a scheme with its ratio and options, such as top-k:0.01,ef, "
      "random-block:0.01,ef, "
      "bf16, low-rank:4,ef or sketch; see docs/compression.md (default: dense gradients)");
  add("--tuning-cache", options.tuning_cache, "FILE",
      "File for what tuning learns: a later run of the same model, on as many ranks and the same network, "
      "begins with it");
  add("--network", options.network, "NETWORK",
      "Model a network: " + names_in(network_presets()) +
          ", bandwidth=1gbit,latency=50us, a cluster file, whose dimensions are a grid where there are "
          "several, or a file of links for each pair of ranks "
          "(default: the real one)");
  options.grid.add_to(command, false);
  add("--backend", options.job.backend, "NAME",
      "What carries collectives: " + names_in(backend_table()) +
          " (default: the fastest that reaches all ranks)");
  command.add_flag("--reproducible", options.job.reproducible,
                   "Add up in the order of ranks on every backend, so that results are the same bits");
  command.add_flag(
      "--one-copy", options.job.one_copy,
      "Workers share one copy of the parameters in memory, so that their all-gather is a barrier; on "
      "one host, on shared memory, with policy dear or dear-eager");
  add.with_default("--verify", options.job.verify, "N",
                   "Every N steps compare parameters, which workers have alike; 0 for never");
  add.with_default("--steps", options.job.steps, "K",
                   options.job.tune ? "Optimiser steps at most" : "Optimiser steps");
  add.with_default("--batch", options.job.batch, "N", "Samples in a step, per worker");
  add.with_default("--layers", options.job.layers, "N", "Transformer blocks");
  add.with_default("--width", options.job.width, "N", "Size of the hidden state");
  add.with_default("--heads", options.job.heads, "N", "Attention heads; a divisor of the width");
  add.with_default("--context", options.job.context, "N", "Characters in a sample");
  add.with_default("--seed", options.job.seed, "N",
                   "Of the first parameters, the batches and the generated text");
  add("--lr", options.learning_rate, "RATE", "Learning rate (default by optimiser)");
  add.with_default(
      "--optimizer", options.optimizer, "NAME",
      names_in(train_command::optimizers()) + ", kfac; sgd has momentum 0.9, and kfac is K-FAC before it");
  options.kfac.add_to(command);
  options.moe.add_to(command);
  add("--threads", options.threads, "N",
      "Of each worker (default: OMP_NUM_THREADS, else the cores shared among the workers)");
  command.add_flag(kBindOption, options.bind,
                   "Keep each worker on its part of the cores; for a host that has nothing else to do");
  add("--trace", options.trace, "FILE",
      options.job.tune
          ? "Write a Chrome/Perfetto trace of all ranks"
          : "Write a Chrome/Perfetto trace of all ranks; with --compare, of up to 20 more steps of each "
            "policy, to a file each: for run.json to run-serial.json, run-dear.json, ...");
  add.with_default("--timeout", options.timeout, "TIME", "How long to wait for another rank");
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("train", "Train a small GPT on the characters of a text, with several workers");
  const auto options = std::make_shared<TrainOptions>();
  add_job_options(*command, *options);
  const OptionAdder add(*command);
  add("--compare", options->compare, "NAME[,NAME...]",
      "Policies to compare on the same data: serial,wfbp,dear; they take turns of about 10 steps until each "
      "has "
      "--steps, and end with the same parameters");
  add.with_default(
      "--fusion", options->fusion, "SPEC",
      "How to group tensors: a size such as 25MiB, first=1MiB,25MiB for a first bucket of its own size, "
      "layer, all; planned: with the best borders for what the first steps take; auto, or auto=SIZE: tuned "
      "while training, with that size at first (default auto)");
  add("--compare-compression", options->compare_compression, "SPEC SPEC...",
      "Compressions to compare on the same data under one policy, with spaces between them: \"dense "
      "top-k:0.01,ef "
      "random-block:0.01,ef\"; they take turns as with --compare");
  add("--plot", options->plot, "FILE",
      "Draw the loss of the compressions that are compared against bytes sent and against seconds, as SVG, "
      "PDF or PNG by its ending");
  add("--schedule", options->schedule, "FILE",
      "Policy and buckets from a file that dear plan --schedule wrote, instead of --policy and --fusion");
  add("--json", options->json, "FILE",
      "Write losses, times and the digest of the parameters; with --compare, of each policy, and the "
      "speed-ups");
  add("--profile", options->profile, "FILE",
      "Write the measured workload, for dear simulate; with --compare, from up to 20 more steps of the last "
      "policy");
  add("--metrics", options->metrics, "FILE",
      "Append a line of JSON to FILE for each step: seconds, exposed communication, overlap, bytes, buckets, "
      "tuning, of rank 0");
  add_saving_options(*command, options->saving);
  add("--sample", options->sample, "N",
      "Characters to generate at the end (default 200 with --compare, else 0)");
  command->callback([options] { run_train_command(*options); });
}

void add_tune_training(CLI::App& tune) {
  CLI::App* const command = tune.add_subcommand(
      "training", "Tune the job of dear train, while it trains; ends when it has converged");
  const auto options = std::make_shared<TrainOptions>();
  options->command = "dear tune training";
  options->job.tune = true;
  const auto start = std::make_shared<std::string>();
  add_job_options(*command, *options);
  const OptionAdder add(*command);
  add("--start", *start, "SIZE", "Bucket size that runs first");
  add("--json", options->tuning_json, "FILE", "Write trials and choice to FILE");
  add("--plot", options->tuning_plot, "FILE",
      "Draw trials and what is expected of the rest, as SVG, PDF or PNG by its ending");
  add("--schedule", options->tuned_schedule, "FILE", "Write the choice for dear train --schedule");
  command->callback([options, start] {
    if (!start->empty()) options->fusion = "auto=" + *start;
    run_train_command(*options);
  });
}

}  // namespace dear::cli
