#include "dear/tools/command/train_options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"
#include "dear/methods/kfac/plan.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/systems/train_command/optimizers.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {
namespace {

// Far above any use, and low enough that products of a few of them stay within 64 bits.
constexpr std::int64_t kMostOfAny = 1'000'000;
constexpr std::int64_t kMostSteps = 1'000'000'000;
constexpr std::size_t kMostCompared = 16;  // each has a model of its own in memory

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) {
      return parts;
    }
    begin = end + 1;
  }
}

// The strategy of K-FAC of this name, or the usual one.
std::string kfac_of(const std::string& name) {
  const auto& all = methods::kfac::strategies();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == name; })
             ? name
             : train_command::KfacJob{}.strategy;
}

std::vector<std::string> checked_policies(const TrainOptions& options) {
  if (options.policy && options.compare) {
    throw ConfigError("--policy and --compare exclude each other; name every policy in --compare");
  }
  const std::string_view option = options.compare ? "--compare" : "--policy";
  std::vector<std::string> names =
      options.compare ? split_at_commas(*options.compare) : std::vector{options.policy.value_or("dear")};
  for (const std::string& name : names) {
    if (name.find(kKfac) != std::string::npos)
      throw ConfigError(fmt::format(
          "{} {}: strategies of K-FAC, {}, belong to its optimizer: give --optimizer kfac --kfac {}", option,
          name, names_in(methods::kfac::strategies()), kfac_of(name)));
    parse_option(option, [&] {
      return automatic_candidates(name).empty() ? find_training_policy(name).name : std::string_view(name);
    });
  }
  if (names.size() > kMostCompared)
    throw ConfigError(fmt::format("--compare names {} policies, but at most {} can be compared at once",
                                  names.size(), kMostCompared));
  return names;
}

// Chooses the policies and the buckets of the job.
void choose_policies(const TrainOptions& options, TrainSettings& settings) {
  if (!options.schedule) {
    settings.policies = checked_policies(options);
    if (options.fusion)
      settings.buckets = parse_option("--fusion", [&] { return FusionChoice::of_training(*options.fusion); });
    return;
  }
  if (options.policy || options.compare || options.fusion) {
    throw ConfigError(
        "--schedule names a policy and its buckets: leave --policy, --compare and --fusion out");
  }
  ScheduleFile file = parse_option("--schedule", [&] { return read_schedule_file(*options.schedule); });
  parse_option(fmt::format("--schedule: {}", *options.schedule),
               [&] { return find_training_policy(file.policy).name; });
  settings.policies = {file.policy};
  settings.buckets = {.kind = FusionChoice::Kind::given, .fusion = Fusion(std::move(file.buckets))};
}

// Chooses how the gradients of each run travel: one compression for all policies, or one policy with several.
void choose_compressions(const TrainOptions& options, TrainSettings& settings) {
  if (!options.compare_compression) {
    std::optional<Compression> compression;
    if (options.compress)
      compression = parse_option("--compress", [&] { return Compression::parse(*options.compress); });
    settings.compressions.assign(settings.policies.size(), compression);
  } else {
    if (options.compress)
      throw ConfigError(
          "--compress and --compare-compression exclude each other; name every one in the latter");
    if (settings.compare)
      throw ConfigError("--compare and --compare-compression exclude each other: compare one or the other");
    std::istringstream names(*options.compare_compression);
    for (std::string name; names >> name;)
      settings.compressions.push_back(
          name == train_command::kDense ? std::nullopt : parse_option("--compare-compression", [&] {
            return std::optional(Compression::parse(name));
          }));
    if (settings.compressions.empty() || settings.compressions.size() > kMostCompared)
      throw ConfigError(
          fmt::format("--compare-compression names {} compressions: name 1 to {}, with spaces between them, "
                      "such as \"dense "
                      "top-k:0.01,ef\"",
                      settings.compressions.size(), kMostCompared));
    settings.compare = settings.compares_compressions = true;
    settings.policies.assign(settings.compressions.size(), settings.policies.front());
    if (options.trace || options.profile)
      throw ConfigError("--compare-compression records nothing: record one run, with --compress");
  }
  if (options.plot && !settings.compares_compressions)
    throw ConfigError("--plot draws what --compare-compression compares: give that, too");
  const bool compresses = std::any_of(settings.compressions.begin(), settings.compressions.end(),
                                      [](const auto& one) { return one.has_value(); });
  if (!compresses) return;
  const std::string_view option = options.compress ? "--compress" : "--compare-compression";
  for (const std::string& policy : settings.policies)
    parse_option(option, [&] { return require_policy_that_compresses(find_policy(policy)), 0; });
  if (options.job.one_copy)
    throw ConfigError(
        fmt::format("{} and --one-copy exclude each other: gradients that travel compressed update whole "
                    "buckets on every rank",
                    option));
}

void choose_saving(const TrainOptions& options, TrainSettings& settings) {
  settings.saving = checked_saving(options.saving);
  if (options.saving.save && settings.compare)
    throw ConfigError("--save is for one run: leave --compare and --compare-compression out");
}

// After the policies and compressions, which K-FAC must see whole gradients of.
void choose_optimizer(const TrainOptions& options, TrainSettings& settings) {
  settings.optimizer = options.optimizer;
  if (options.optimizer != kKfac) {
    settings.learning_rate =
        options.learning_rate.value_or(checked_optimizer(options.optimizer, {kKfac}).learning_rate);
    if (const std::string given = options.kfac.given(); !given.empty())
      throw ConfigError(fmt::format("{} is of K-FAC: name that, too, with --optimizer kfac", given));
    return;
  }
  settings.kfac = check(options.kfac);
  settings.learning_rate = options.learning_rate.value_or(kKfacLearningRate);
  for (const std::string& policy : settings.policies)
    if (find_policy(policy).overlap == Overlap::eager)
      throw ConfigError(fmt::format(
          "--optimizer kfac and policy {} exclude each other: that updates parameters before gradients are "
          "whole",
          policy));
  if (std::any_of(settings.compressions.begin(), settings.compressions.end(),
                  [](const auto& one) { return one.has_value(); }))
    throw ConfigError(
        "--optimizer kfac and compressed gradients exclude each other: those are whole only after the "
        "update");
}

// Refuses what cannot work with experts that lie on one worker each.
void choose_mixtures(const TrainOptions& options, TrainSettings& settings) {
  settings.moe = check(options.moe, options.job, settings.workers);
  if (!settings.moe) return;
  const auto refuse = [](const std::string& option, const char* why) {
    throw ConfigError(fmt::format("--model moe-gpt and {} exclude each other: {}", option, why));
  };
  if (settings.kfac) refuse("--optimizer kfac", "K-FAC does not see layers whose weight gradients are late");
  if (settings.optimizer == "lamb" || settings.optimizer == "lars")
    refuse("--optimizer " + settings.optimizer,
           "it takes norms of whole tensors, and those of experts lie on several workers");
  if (options.saving.save)
    refuse("--save", "a checkpoint has what all workers have alike, and experts are not");
  if (options.sample.value_or(0) > 0)
    refuse("--sample", "one worker alone has not all experts to continue a text with");
  if (options.profile) refuse("--profile", "a workload has no all-to-alls");
}

std::set<std::string> trace_files(const TrainSettings& settings) {
  std::set<std::string> files;
  for (const std::string& policy : settings.policies) files.insert(settings.trace_of(policy));
  return files;
}

Outputs outputs_of(const TrainSettings& settings) {
  Outputs outputs = {{"--json", settings.json},        {"--profile", settings.profile},
                     {"--metrics", settings.metrics},  {"--tuning-cache", settings.tuning_cache},
                     {"--json", settings.tuning_json}, {"--plot", settings.tuning_plot},
                     {"--plot", settings.plot},        {"--schedule", settings.tuned_schedule}};
  for (const std::string& path : trace_files(settings)) outputs.emplace_back("--trace", path);
  return outputs;
}

}  // namespace

std::string TrainSettings::trace_of(const std::string& policy) const {
  if (trace.empty() || !compare) return trace;
  const std::filesystem::path given(trace);
  std::filesystem::path own = given;
  own.replace_filename(fmt::format("{}-{}{}", given.stem().string(), policy, given.extension().string()));
  return own.string();
}

const train_command::OptimizerChoice& checked_optimizer(const std::string& name,
                                                        const std::vector<std::string_view>& others) {
  std::vector<std::string_view> names;
  for (const train_command::OptimizerChoice& choice : train_command::optimizers()) {
    if (choice.name == name) {
      return choice;
    }
    names.push_back(choice.name);
  }
  names.insert(names.end(), others.begin(), others.end());
  throw ConfigError(fmt::format("--optimizer: there is no '{}'{} choose one of {}", name,
                                did_you_mean(name, names), fmt::join(names, ", ")));
}

void check_learning_rate(double rate) {
  if (!std::isfinite(rate) || rate < 0)
    throw ConfigError(fmt::format("--lr is {}, but must be a finite number, at least 0", rate));
}

void check(const train_command::GptJob& job) {
  check_range("--steps", job.steps, 1, kMostSteps);
  check_range("--verify", job.verify, 0, kMostOfAny);
  check_range("--batch", job.batch, 1, kMostOfAny);
  check_range("--layers", job.layers, 1, kMostOfAny);
  check_range("--width", job.width, 1, kMostOfAny);
  check_range("--heads", job.heads, 1, kMostOfAny);
  check_range("--context", job.context, 1, kMostOfAny);
  if (job.width % job.heads != 0) {
    throw ConfigError(
        fmt::format("--heads is {}, which does not divide --width, {}; choose a divisor of the width",
                    job.heads, job.width));
  }
}

int checked_threads(const std::optional<std::int64_t>& given, int workers,
                    const LaunchEnvironment& environment, const Host& host) {
  if (given) {
    check_range("--threads", *given, 1, launch::kMostRanks);
  }
  const int workers_here = environment.size > 1 ? environment.local_size : workers;
  const int shared = host.threads.value_or(std::max(1, host.cores / workers_here));
  return static_cast<int>(given.value_or(shared));
}

train_command::Saving checked_saving(const SavingOptions& options) {
  train_command::Saving saving;
  if (!options.save) {
    if (options.every || options.keep || options.resume)
      throw ConfigError(fmt::format("{} is of checkpoints: name their folder, too, with --save",
                                    options.every  ? "--every"
                                    : options.keep ? "--keep"
                                                   : "--resume"));
    return saving;
  }
  saving.directory = checked_output_folder("--save", *options.save);
  saving.every = options.every.value_or(saving.every);
  check_range("--every", saving.every, 1, kMostSteps);
  const std::int64_t keep = options.keep.value_or(saving.keep);
  check_range("--keep", keep, 1, kMostOfAny);
  saving.keep = static_cast<int>(keep);
  saving.resume = options.resume;
  return saving;
}

TrainSettings check(const TrainOptions& options, const LaunchEnvironment& environment, const Host& host) {
  TrainSettings settings;
  settings.job = options.job;
  settings.command = options.command;
  settings.data = options.data;
  settings.workers = checked_workers(options.workers, 2, environment);
  settings.compare = options.compare.has_value();
  choose_policies(options, settings);
  choose_compressions(options, settings);
  choose_saving(options, settings);
  const std::vector<GridSettings> grids = checked_grids(options.grid, options.network, settings.workers);
  if (!grids.empty()) settings.grid = grids.front();
  if (options.network && !settings.grid) {
    settings.network = checked_network(*options.network, options.job.backend, settings.workers);
  }
  if (!options.job.backend.empty()) {
    parse_option("--backend", [&] { return find_backend(options.job.backend).name; });
  }
  if (settings.job.one_copy) {
    for (const std::string& policy : settings.policies)
      parse_option("--one-copy", [&] { return require_one_copy_policy(find_policy(policy)), 0; });
    if (settings.grid)
      throw ConfigError("--one-copy and a grid exclude each other: its ranks share no memory");
    if (settings.network && settings.workers > 1)
      throw ConfigError(
          "--one-copy and --network exclude each other: ranks on a modelled network stand for hosts of their "
          "own, which share no memory");
  }
  check(options.job);
  choose_optimizer(options, settings);
  choose_mixtures(options, settings);
  check_learning_rate(settings.learning_rate);
  settings.threads = checked_threads(options.threads, settings.workers, environment, host);
  refuse_bind_under_launcher(options.bind, environment);
  settings.bind = options.bind;
  settings.timeout_seconds = checked_timeout(options.timeout, "120s");
  settings.sample = options.sample.value_or(settings.compare && !settings.moe ? 200 : 0);
  check_range("--sample", settings.sample, 0, kMostOfAny);
  settings.trace = checked_output_path("--trace", options.trace);
  for (const std::string& path : trace_files(settings))
    if (!path.empty()) static_cast<void>(checked_output_path("--trace", path));
  settings.json = checked_output_path("--json", options.json);
  settings.plot = checked_picture_path("--plot", options.plot);
  settings.profile = checked_output_path("--profile", options.profile);
  settings.metrics = checked_output_path("--metrics", options.metrics);
  if (!settings.metrics.empty() && settings.compare)
    throw ConfigError("--metrics is of one run: leave it, or what compares several, out");
  if (settings.job.tune && settings.workers == 1)
    throw ConfigError(
        "one worker alone has no buckets to tune: give --workers, or start it under a launcher");
  settings.tuning_json = checked_output_path("--json", options.tuning_json);
  settings.tuning_plot = checked_picture_path("--plot", options.tuning_plot);
  settings.tuned_schedule = checked_output_path("--schedule", options.tuned_schedule);
  settings.tuning_cache = checked_output_path("--tuning-cache", options.tuning_cache);
  if (!settings.tuning_cache.empty() && settings.buckets.kind != FusionChoice::Kind::tuned)
    throw ConfigError(
        fmt::format("--tuning-cache is for buckets that are tuned, and these are not: leave it, or {}, out",
                    options.schedule ? "--schedule" : "--fusion"));
  refuse_shared_outputs(outputs_of(settings));
  return settings;
}

Host this_host() {
  return {.cores = static_cast<int>(launch::usable_cores().size()),
          .threads = launch::threads_of_environment()};
}

}  // namespace dear::cli
