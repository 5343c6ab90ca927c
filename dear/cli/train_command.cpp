#include "dear/cli/train_command.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/atomic_file.h"
#include "dear/base/digest.h"
#include "dear/base/error.h"
#include "dear/cli/corpus.h"
#include "dear/cli/exit_status.h"
#include "dear/cli/launcher.h"
#include "dear/cli/progress.h"
#include "dear/cli/trace_gather.h"
#include "dear/cli/train_options.h"
#include "dear/cli/train_report.h"
#include "dear/cli/train_run.h"
#include "dear/collective/backends.h"
#include "dear/collective/environment.h"
#include "dear/collective/exchange.h"
#include "dear/collective/init.h"
#include "dear/schedule/policy/policy.h"
#include "dear/trace/chrome.h"
#include "dear/train/c10d/c10d.h"
#include "dear/workload/workload_file.h"

namespace dear::cli {
namespace {

template <typename Table>
std::string names_in(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) {
    names.push_back(entry.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

constexpr std::int64_t kRecordedSteps = 20;
constexpr const char* kBind = "--bind";

void say(const std::string& text) { std::cout << text << std::flush; }

// This command as it was given, for the ranks that the launcher starts, and binds where that was asked for.
std::vector<std::string> own_command() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw TransportError(
        with_errno("cannot find the program to start as workers (/proc/self/exe)", error.value()));
  }
  std::vector<std::string> command;
  const std::string line = read_file("/proc/self/cmdline");  // each argument is ended by a NUL
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('\0', begin), line.size());
    command.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  command.at(0) = program.string();
  std::erase_if(command,
                [](const std::string& word) { return word.starts_with(kBind); });  // also --bind=true
  return command;
}

std::string heading(const TrainSettings& settings, const Corpus& corpus) {
  return fmt::format(
      "training a GPT of {} parameters ({} layers, width {}, context {}) on {} characters of {} kinds\n"
      "{} worker{}, {} thread{} for each, {} characters in a step, optimiser {}, fusion {}\n",
      with_separators(parameter_count(settings, corpus)), settings.layers, settings.width, settings.context,
      with_separators(static_cast<std::int64_t>(corpus.text.size())), corpus.vocabulary.size(),
      settings.workers, settings.workers == 1 ? "" : "s", settings.threads, settings.threads == 1 ? "" : "s",
      with_separators(settings.characters_per_step()), settings.optimizer, settings.fusion.text());
}

// What must be the same on all ranks, also when each was started with a command of its own.
std::string common_settings(const TrainSettings& settings, const Corpus& corpus) {
  return fmt::format(
      "policies {}, fusion {}, network {}, backend {}, reproducible {}, steps {}, batch {}, layers {}, width "
      "{}, heads {}, context {}, "
      "seed {}, "
      "optimiser {}, lr {}, data {}, trace {}, profile {}",
      fmt::join(settings.policies, " "), settings.fusion.text(),
      settings.network ? settings.network->name : "real",
      settings.backend.empty() ? "chosen" : settings.backend, settings.reproducible, settings.steps,
      settings.batch, settings.layers, settings.width, settings.heads, settings.context, settings.seed,
      settings.optimizer, settings.learning_rate, Digest().add(corpus.text).hex(), !settings.trace.empty(),
      !settings.profile.empty());
}

std::vector<TrainResult> run_policies(const TrainSettings& settings, const Corpus& corpus,
                                      const Group& group) {
  const bool shown = group.rank() == 0;
  const bool recorded = !settings.trace.empty() || !settings.profile.empty();
  std::vector<TrainResult> runs;
  for (std::size_t i = 0; i < settings.policies.size(); ++i) {
    const bool last = i + 1 == settings.policies.size();
    TrainRun run{.policy = settings.policies[i],
                 .record_trace = recorded && !settings.compare,
                 .sample = last ? settings.sample : 0,
                 .on_step = {}};
    Progress progress(std::cout, {.label = run.policy,
                                  .steps = settings.steps,
                                  .characters_per_step = settings.characters_per_step(),
                                  .terminal = ::isatty(STDOUT_FILENO) == 1});
    if (shown) {
      run.on_step = [&](std::int64_t done, double loss, double seconds) {
        progress.update(done, loss, seconds);
      };
    }
    runs.push_back(train(settings, run, corpus, group));
  }
  if (recorded && settings.compare) {
    // Recording slows what it records, so what is compared is not recorded.
    TrainSettings shorter = settings;
    shorter.steps = std::min(settings.steps, kRecordedSteps);
    TrainResult again =
        train(shorter, {.policy = settings.policies.back(), .record_trace = true, .sample = 0, .on_step = {}},
              corpus, group);
    runs.back().trace = std::move(again.trace);
    runs.back().profile = std::move(again.profile);
  }
  return runs;
}

void write_files(const TrainSettings& settings, const std::vector<TrainResult>& runs,
                 const std::optional<Trace>& trace) {
  if (!settings.json.empty()) {
    write_file_atomically(settings.json, settings.compare ? to_json(runs) : to_json(runs.front()));
    say(fmt::format("results: {}\n", settings.json));
  }
  if (trace) {
    write_chrome_trace(*trace, settings.trace);
    say(fmt::format("trace of policy {}, all ranks: {} (open it at https://ui.perfetto.dev)\n",
                    runs.back().policy, settings.trace));
  }
  if (!settings.profile.empty()) {
    write_workload(runs.back().profile.value(), settings.profile);
    say(fmt::format("profile of policy {}, rank 0: {} (for dear simulate --model)\n", runs.back().policy,
                    settings.profile));
  }
}

void report(const TrainSettings& settings, const std::vector<TrainResult>& runs, const Group& group,
            const std::optional<Trace>& trace) {
  say("\n" + (settings.compare ? comparison_table(runs) : to_text(runs.front())));
  say(network_line(group.modelled_network(), group.description()));
  if (settings.sample > 0) {
    say(fmt::format("\n{} characters from the model trained last:\n{}\n\n", settings.sample,
                    printable(runs.back().sample)));
  }
  try {
    write_files(settings, runs, trace);
  } catch (const ConfigError& error) {
    throw Error(error.what());  // the paths were checked before: this is a failure while running
  }
  for (const TrainResult& run : runs) {
    if (!same_parameters(runs.front(), run)) {
      std::cerr << fmt::format("dear train: the parameters of policy {} differ from those of {}\n",
                               run.policy, runs.front().policy);
      throw ExitStatus{kExitFailure};
    }
  }
}

void run_rank(const TrainSettings& settings, const Corpus& corpus) {
  set_compute_threads(settings.threads);
  std::string choice;
  Group group = init({.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                      .network = settings.network,
                      .backend = settings.backend,
                      .more_backends = train::c10d_backends(),
                      .reproducible = settings.reproducible,
                      .say = [&](const std::string& sentence) { choice = sentence + "\n"; }});
  try {
    agree(group, "command", common_settings(settings, corpus));
    if (group.rank() == 0) {
      say(heading(settings, corpus) + choice + "\n");
    }
    const std::vector<TrainResult> runs = run_policies(settings, corpus, group);
    std::optional<Trace> trace;
    if (!settings.trace.empty()) {
      trace = gather_trace(group, runs.back().trace.value());
    }
    if (group.rank() == 0) {
      report(settings, runs, group, trace);
    }
  } catch (const std::exception& error) {
    group.abort(error.what());  // the peers learn the reason at once
    throw;
  }
}

// Says what went wrong under this rank's name: ranks share one standard error.
[[noreturn]] void fail_as_rank(int rank, const std::exception& error) {
  // Every rank throws the same of these.
  if (rank == 0 || dynamic_cast<const MismatchError*>(&error) == nullptr) {
    const std::string name = fmt::format("rank {}: ", rank);
    const std::string_view message = error.what();
    std::cerr << fmt::format("dear train: {}{}\n", message.starts_with(name) ? "" : name, message);
  }
  throw ExitStatus{dynamic_cast<const ConfigError*>(&error) != nullptr ? kExitWrongUsage : kExitFailure};
}

void run_as_rank(const TrainOptions& options, const LaunchEnvironment& environment) {
  try {
    const TrainSettings settings = check(options, environment, this_host(), train::c10d_backends());
    run_rank(settings, read_corpus(settings.data, settings.context + 2));
  } catch (const std::exception& error) {
    fail_as_rank(environment.rank, error);
  }
}

void run_train_command(const TrainOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  if (environment.size > 1) {
    run_as_rank(options, environment);
    return;
  }
  const TrainSettings settings = check(options, environment, this_host(), train::c10d_backends());
  const Corpus corpus = read_corpus(settings.data, settings.context + 2);
  if (settings.workers == 1) {
    run_rank(settings, corpus);
    return;
  }
  const Launcher launcher({.who = "dear train",
                           .ranks = settings.workers,
                           .command = own_command(),
                           .environment = {},
                           .prefix = false,
                           .bind = settings.bind});
  if (const int code = launcher.run(); code != 0) {
    throw ExitStatus{code};
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("train", "train a small GPT on the characters of a text, with several workers");
  const auto options = std::make_shared<TrainOptions>();
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    command->add_option(name, value, help)->capture_default_str();
  };
  add("--data", options->data, "file, or folder with files, whose characters to learn");
  add("--workers", options->workers, "ranks on this host (default 1; under a launcher: all of its ranks)");
  add("--policy", options->policy,
      "how to overlap communication: " + names_in(training_policies()) + " (default dear)");
  add("--compare", options->compare, "policies to run one after another on the same data: serial,wfbp,dear");
  add("--fusion", options->fusion,
      "how to group tensors: a size such as 25MiB, first=1MiB,25MiB for a first bucket of its own size, "
      "layer, or all (default 25MiB)");
  add("--schedule", options->schedule,
      "policy and buckets from a file that dear plan --schedule wrote, instead of --policy and --fusion");
  add("--network", options->network,
      "model a network: " + names_in(network_presets()) +
          ", bandwidth=1gbit,latency=50us, or a cluster file (default: the real one)");
  add("--backend", options->backend,
      "what carries collectives: " + names_in(backends()) + ", " + names_in(train::c10d_backends()) +
          " (default: the fastest that reaches all ranks)");
  command->add_flag("--reproducible", options->reproducible,
                    "add up in the order of ranks on every backend, so that results are the same bits");
  add("--steps", options->steps, "optimiser steps");
  add("--batch", options->batch, "samples in a step, per worker");
  add("--layers", options->layers, "transformer blocks");
  add("--width", options->width, "size of the hidden state");
  add("--heads", options->heads, "attention heads; a divisor of the width");
  add("--context", options->context, "characters in a sample");
  add("--seed", options->seed, "of the first parameters, the batches and the generated text");
  add("--lr", options->learning_rate, "learning rate (default by optimiser)");
  add("--optimizer", options->optimizer, names_in(optimizers()) + "; sgd has momentum 0.9");
  add("--threads", options->threads,
      "per worker (default: OMP_NUM_THREADS, else the cores shared among the workers)");
  command->add_flag(kBind, options->bind,
                    "keep each worker on its part of the cores; for a host that has nothing else to do");
  add("--trace", options->trace,
      "write a Chrome/Perfetto trace of all ranks; with --compare, of some more steps of the last policy");
  add("--json", options->json, "write losses, times and the digest of the parameters");
  add("--profile", options->profile,
      "write the measured workload, for dear simulate; with --compare, as for --trace");
  add("--timeout", options->timeout, "how long to wait for another rank");
  add("--sample", options->sample, "characters to generate at the end (default 200 with --compare, else 0)");
  command->callback([options] { run_train_command(*options); });
}

}  // namespace dear::cli
