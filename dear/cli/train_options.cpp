#include "dear/cli/train_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/cli/cores.h"
#include "dear/cli/launcher.h"
#include "dear/cli/output_path.h"
#include "dear/collective/backends.h"
#include "dear/schedule/policy/policy.h"
#include "dear/schedule/schedule_file.h"

namespace dear::cli {
namespace {

// Far above any use, and low enough that products of a few of them stay within 64 bits.
constexpr std::int64_t kMostOfAny = 1'000'000;
constexpr std::int64_t kMostSteps = 1'000'000'000;

void check_range(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw ConfigError(fmt::format("{} is {}, but must be from {} to {}", option, value, least, most));
  }
}

// Gives an error that a parser throws the option's name.
template <typename Parse>
auto parse_option(std::string_view option, Parse parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", option, error.what()));
  }
}

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

std::vector<std::string> checked_policies(const TrainOptions& options) {
  if (options.policy && options.compare) {
    throw ConfigError("--policy and --compare exclude each other; name every policy in --compare");
  }
  const std::string_view option = options.compare ? "--compare" : "--policy";
  std::vector<std::string> names =
      options.compare ? split_at_commas(*options.compare) : std::vector{options.policy.value_or("dear")};
  for (const std::string& name : names) {
    parse_option(option, [&] { return find_training_policy(name).name; });
  }
  return names;
}

// Policies, and how they group tensors.
void choose_policies(const TrainOptions& options, TrainSettings& settings) {
  if (!options.schedule) {
    settings.policies = checked_policies(options);
    if (options.fusion) {
      settings.fusion = parse_option("--fusion", [&] { return Fusion::parse(*options.fusion); });
    }
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
  settings.fusion = Fusion(std::move(file.buckets));
}

const OptimizerChoice& checked_optimizer(const std::string& name) {
  std::vector<std::string_view> names;
  for (const OptimizerChoice& choice : optimizers()) {
    if (choice.name == name) {
      return choice;
    }
    names.push_back(choice.name);
  }
  throw ConfigError(
      fmt::format("--optimizer: there is no '{}'; choose one of {}", name, fmt::join(names, ", ")));
}

int checked_workers(const TrainOptions& options, const LaunchEnvironment& environment) {
  if (options.workers) {
    check_range("--workers", *options.workers, 1, kMostRanks);
  }
  if (environment.size == 1) {
    return static_cast<int>(options.workers.value_or(1));
  }
  if (options.workers && *options.workers != environment.size) {
    throw ConfigError(
        fmt::format("--workers is {}, but {} has started {} ranks; leave --workers out under a launcher",
                    *options.workers, environment.launcher, environment.size));
  }
  return environment.size;
}

void refuse_shared_outputs(const TrainSettings& settings) {
  if ((!settings.trace.empty() && (settings.trace == settings.json || settings.trace == settings.profile)) ||
      (!settings.json.empty() && settings.json == settings.profile)) {
    throw ConfigError("--trace, --json and --profile name the same file; give each its own");
  }
}

}  // namespace

const std::vector<OptimizerChoice>& optimizers() {
  static const std::vector<OptimizerChoice> kTable = {
      {"adamw", "Adam with decoupled weight decay 0.01", 1e-3},
      {"adam", "Adam", 1e-3},
      {"sgd", "stochastic gradient descent with momentum 0.9", 0.1},
      {"rmsprop", "RMSprop", 5e-4},
      {"adagrad", "Adagrad", 1e-2},
  };
  return kTable;
}

TrainSettings check(const TrainOptions& options, const LaunchEnvironment& environment, const Host& host,
                    const BackendTable& more_backends) {
  TrainSettings settings;
  settings.data = options.data;
  settings.workers = checked_workers(options, environment);
  settings.compare = options.compare.has_value();
  choose_policies(options, settings);
  if (options.network) {
    settings.network = parse_option("--network", [&] { return parse_network(*options.network); });
  }
  if (!options.backend.empty()) {
    parse_option("--backend", [&] { return find_backend(options.backend, more_backends).name; });
  }
  settings.backend = options.backend;
  settings.reproducible = options.reproducible;
  check_range("--steps", options.steps, 1, kMostSteps);
  check_range("--batch", options.batch, 1, kMostOfAny);
  check_range("--layers", options.layers, 1, kMostOfAny);
  check_range("--width", options.width, 1, kMostOfAny);
  check_range("--heads", options.heads, 1, kMostOfAny);
  check_range("--context", options.context, 1, kMostOfAny);
  if (options.width % options.heads != 0) {
    throw ConfigError(
        fmt::format("--heads is {}, which does not divide --width, {}; choose a divisor of the width",
                    options.heads, options.width));
  }
  settings.steps = options.steps;
  settings.batch = options.batch;
  settings.layers = options.layers;
  settings.width = options.width;
  settings.heads = options.heads;
  settings.context = options.context;
  settings.seed = options.seed;
  const OptimizerChoice& optimizer = checked_optimizer(options.optimizer);
  settings.optimizer = optimizer.name;
  settings.learning_rate = options.learning_rate.value_or(optimizer.learning_rate);
  if (!std::isfinite(settings.learning_rate) || settings.learning_rate < 0) {
    throw ConfigError(
        fmt::format("--lr is {}, but must be a finite number, at least 0", settings.learning_rate));
  }
  if (options.threads) {
    check_range("--threads", *options.threads, 1, kMostRanks);
  }
  const int workers_here = environment.size > 1 ? environment.local_size : settings.workers;
  const int shared = host.threads.value_or(std::max(1, host.cores / workers_here));
  settings.threads = static_cast<int>(options.threads.value_or(shared));
  if (options.bind && environment.size > 1) {
    throw ConfigError(fmt::format(
        "--bind places the workers that --workers starts, but {} has started these; let it place them",
        environment.launcher));
  }
  settings.bind = options.bind;
  settings.timeout_seconds = parse_option("--timeout", [&] { return parse_seconds(options.timeout); });
  if (settings.timeout_seconds <= 0) {
    throw ConfigError("--timeout is 0, but must be longer; 120s is the default");
  }
  settings.sample = options.sample.value_or(settings.compare ? 200 : 0);
  check_range("--sample", settings.sample, 0, kMostOfAny);
  settings.trace = checked_output_path("--trace", options.trace);
  settings.json = checked_output_path("--json", options.json);
  settings.profile = checked_output_path("--profile", options.profile);
  refuse_shared_outputs(settings);
  return settings;
}

Host this_host() {
  return {.cores = static_cast<int>(usable_cores().size()), .threads = threads_of_environment()};
}

}  // namespace dear::cli
