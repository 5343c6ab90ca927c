#include "dear/tools/rounds_command/rounds_options.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"
#include "dear/methods/rounds/logistic.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/tools/options/option_checks.h"

namespace dear::rounds_command {
namespace {

using methods::rounds::Algorithm;
using methods::rounds::Cohort;
using methods::rounds::Control;
using methods::rounds::Goal;
using methods::rounds::LocalSteps;
using methods::rounds::Sent;

constexpr std::int64_t kMostClients = 1'000'000;
constexpr std::int64_t kMostDimension = 100'000'000;
constexpr std::int64_t kMostRows = 10'000'000;
constexpr std::int64_t kMostRounds = 1'000'000'000;

int whole(std::string_view option, const std::optional<std::int64_t>& given, std::int64_t usual,
          std::int64_t least, std::int64_t most) {
  const std::int64_t value = given.value_or(usual);
  cli::check_range(option, value, least, most);
  return static_cast<int>(value);
}

// Clients hold a few vectors each, and each rank holds the samples of all.
void check_memory(double clients, double dimension, double samples_bytes, int ranks) {
  const double bytes = clients * dimension * 5 * sizeof(double) + samples_bytes * ranks;
  const std::int64_t available = os::available_memory();
  if (bytes > static_cast<double>(available))
    throw ConfigError(
        fmt::format("--clients: {:.0f} clients in {:.0f} dimensions take {:.3g} GiB, but {} are "
                    "available: give fewer, or a smaller --dimension or --rows",
                    clients, dimension, bytes / static_cast<double>(kGiB), format_bytes(available)));
}

void draw_quadratic(const RoundsOptions& options, RoundsSettings& settings) {
  methods::rounds::QuadraticShape shape{.seed = options.seed};
  shape.clients = whole("--clients", options.clients, shape.clients, 1, kMostClients);
  shape.dimension = whole("--dimension", options.dimension, shape.dimension, 1, kMostDimension);
  shape.condition = options.condition.value_or(shape.condition);
  shape.heterogeneity = options.heterogeneity.value_or(shape.heterogeneity);
  const auto dimension = static_cast<double>(shape.dimension);
  check_memory(shape.clients, dimension, shape.clients * dimension * 16, settings.workers);
  settings.described = fmt::format("quadratic functions of {} clients in {} dimensions, L / mu = {:g}",
                                   shape.clients, shape.dimension, shape.condition);
  settings.problem = methods::rounds::make_quadratic(shape);
}

void draw_logistic(const RoundsOptions& options, RoundsSettings& settings) {
  methods::rounds::LogisticShape shape{.seed = options.seed};
  shape.clients = whole("--clients", options.clients, shape.clients, 1, kMostClients);
  shape.dimension = whole("--dimension", options.dimension, shape.dimension, 1, kMostDimension);
  shape.rows = whole("--rows", options.rows, shape.rows, 1, kMostRows);
  shape.nonzeros = whole("--nonzeros", options.nonzeros, shape.nonzeros, 1, kMostDimension);
  shape.condition = options.condition.value_or(shape.condition);
  shape.heterogeneity = options.heterogeneity.value_or(shape.heterogeneity);
  check_memory(shape.clients, static_cast<double>(shape.dimension),
               static_cast<double>(shape.clients) * shape.rows * (8.0 + 4.0 * shape.nonzeros),
               settings.workers);
  settings.described =
      fmt::format("logistic regression of {} clients with {} rows each in {} dimensions, L / mu = {:g}",
                  shape.clients, shape.rows, shape.dimension, shape.condition);
  settings.problem = methods::rounds::make_logistic(shape);
}

void draw_auc(const RoundsOptions& options, RoundsSettings& settings) {
  methods::rounds::AucShape shape{.seed = options.seed};
  shape.clients = whole("--clients", options.clients, shape.clients, 1, kMostClients);
  shape.dimension = whole("--dimension", options.dimension, shape.dimension, 1, kMostDimension);
  shape.rows = whole("--rows", options.rows, shape.rows, 1, kMostRows);
  shape.positive = options.positive.value_or(shape.positive);
  shape.separation = options.separation.value_or(shape.separation);
  struct Named {
    std::string_view name;
    methods::rounds::Shards shards;
  };
  static const std::vector<Named> kShards{{"alike", methods::rounds::Shards::alike},
                                          {"sorted", methods::rounds::Shards::sorted}};
  if (options.shards)
    shape.shards = cli::parse_option("--shards", [&] {
                     return find_named(kShards, *options.shards, "kind of shards");
                   }).shards;
  const auto dimension = static_cast<double>(shape.dimension);
  check_memory(shape.clients, dimension, static_cast<double>(shape.clients) * shape.rows * dimension * 16,
               settings.workers);
  const auto problem = std::make_shared<const methods::rounds::AucProblem>(shape);
  settings.auc = problem.get();
  settings.problem = problem;
  settings.described =
      fmt::format("AUC of {} clients with {} samples each in {} dimensions, {:.3g} % positive, {}",
                  shape.clients, shape.rows, shape.dimension, 100 * problem->share_of_positives(),
                  shape.shards == methods::rounds::Shards::alike ? "dealt at random" : "sorted by a feature");
}

struct NamedProblem {
  std::string_view name;
  void (*draw)(const RoundsOptions& options, RoundsSettings& settings);
  std::vector<std::string_view> algorithms;  // usual ones
  std::vector<std::string_view> options;     // which it looks at
};
const std::vector<NamedProblem>& problems() {
  static const std::vector<std::string_view> kForMinima{"gd", "scaffnew", "compressed-scaffnew", "tamuna"};
  static const std::vector<NamedProblem> kProblems{
      {"logistic", draw_logistic, kForMinima, {"--rows", "--nonzeros", "--condition", "--heterogeneity"}},
      {"quadratic", draw_quadratic, kForMinima, {"--condition", "--heterogeneity"}},
      {"auc", draw_auc, {"coda", "codasca"}, {"--rows", "--positive", "--separation", "--shards"}}};
  return kProblems;
}

void refuse_options_of_other_problems(const RoundsOptions& options, const NamedProblem& problem) {
  const std::vector<std::pair<std::string_view, bool>> given{
      {"--rows", options.rows.has_value()},           {"--nonzeros", options.nonzeros.has_value()},
      {"--condition", options.condition.has_value()}, {"--heterogeneity", options.heterogeneity.has_value()},
      {"--positive", options.positive.has_value()},   {"--separation", options.separation.has_value()},
      {"--shards", options.shards.has_value()}};
  for (const auto& [name, is_given] : given)
    if (is_given && std::find(problem.options.begin(), problem.options.end(), name) == problem.options.end())
      throw ConfigError(
          fmt::format("{}: problem {} has no such property: leave it out, or choose another --problem", name,
                      problem.name));
}

// An option that some algorithms look at; those that do not run with their own value.
struct OfSome {
  std::string_view option;
  bool given;
  std::function<bool(const Algorithm&)> looked_at;
  std::string_view by;
};

void refuse_options_of_other_algorithms(const RoundsOptions& options,
                                        const std::vector<const Algorithm*>& algorithms) {
  const auto saddle = [](const Algorithm& one) { return one.goal == Goal::saddle; };
  const std::vector<OfSome> all{
      {"--cohort", options.cohort.has_value(),
       [](const Algorithm& one) { return one.cohort == Cohort::drawn; }, "fedavg, scaffold and tamuna"},
      {"--owners", !options.owners.empty(), [](const Algorithm& one) { return one.sent == Sent::masked; },
       "compressed-scaffnew and tamuna"},
      {"--chi", options.chi.has_value(), [](const Algorithm& one) { return one.control == Control::shifts; },
       "scaffnew, compressed-scaffnew and tamuna"},
      {"--local-steps", !options.local_steps.empty(),
       [](const Algorithm& one) { return one.steps != LocalSteps::one; }, "all algorithms but gd"},
      {"--stages", options.stages.has_value(), saddle, "coda and codasca"},
      {"--stage-steps", options.stage_steps.has_value(), saddle, "coda and codasca"},
      {"--shrink", options.shrink.has_value(), saddle, "coda and codasca"},
      {"--proximal", options.proximal.has_value(), saddle, "coda and codasca"}};
  for (const OfSome& one : all)
    if (one.given && std::none_of(algorithms.begin(), algorithms.end(),
                                  [&](const Algorithm* algorithm) { return one.looked_at(*algorithm); }))
      throw ConfigError(
          fmt::format("{} counts for {} alone: leave it out, or choose one of them with --algorithm",
                      one.option, one.by));
}

// 0 stands for a value that follows from theory, so no user may give it.
double positive(std::string_view option, const std::optional<double>& given) {
  if (!given) return 0;
  if (!std::isfinite(*given) || *given <= 0)
    throw ConfigError(fmt::format("{} is {}, but must be a finite number above 0", option, *given));
  return *given;
}

methods::rounds::Settings settings_for(const Algorithm& algorithm, const RoundsOptions& options) {
  methods::rounds::Settings settings{
      .algorithm = &algorithm,
      .gamma = positive("--gamma", options.gamma),
      .alpha = options.alpha,
      .absence = options.absence,
      .batch = whole("--batch", options.batch, 0, options.batch ? 1 : 0, kMostRows),
      .seed = options.seed,
      .beyond_theory = options.force};
  if (algorithm.cohort == Cohort::drawn)
    settings.cohort = whole("--cohort", options.cohort, 0, options.cohort ? 1 : 0, kMostClients);
  if (algorithm.control == Control::shifts) settings.chi = positive("--chi", options.chi);
  if (algorithm.goal == Goal::saddle) {
    methods::rounds::Stages& stages = settings.stages;
    stages.count = whole("--stages", options.stages, stages.count, 1, 1000);
    stages.steps = whole("--stage-steps", options.stage_steps, stages.steps, 1, kMostRounds);
    if (options.shrink) stages.shrink = positive("--shrink", options.shrink);
    if (options.proximal) stages.proximal = positive("--proximal", options.proximal);
  }
  return settings;
}

void set_local_steps(methods::rounds::Settings& settings, double steps) {
  const bool fixed = settings.algorithm->steps == LocalSteps::fixed;
  if (!(steps >= 1 && steps <= 1e6) || (fixed && steps != std::floor(steps)))
    throw ConfigError(fmt::format("--local-steps is {}, but {} takes {} from 1 to 1,000,000", steps,
                                  settings.algorithm->name, fixed ? "a whole number" : "a mean"));
  if (fixed)
    settings.every = std::llround(steps);
  else
    settings.probability = 1 / steps;
}

// One for each number of owners and of local steps that the algorithm looks at.
std::vector<methods::rounds::Settings> all_settings_for(const Algorithm& algorithm,
                                                        const RoundsOptions& options) {
  std::vector<methods::rounds::Settings> all{settings_for(algorithm, options)};
  const auto vary = [&](const auto& values, const auto& set) {
    if (values.empty()) return;
    std::vector<methods::rounds::Settings> varied;
    for (const methods::rounds::Settings& one : all)
      for (const auto value : values) set(varied.emplace_back(one), value);
    all = std::move(varied);
  };
  if (algorithm.sent == Sent::masked)
    vary(options.owners, [](methods::rounds::Settings& one, std::int64_t owners) {
      one.owners = whole("--owners", owners, 0, 1, kMostClients);
    });
  if (algorithm.steps != LocalSteps::one) vary(options.local_steps, set_local_steps);
  return all;
}

void choose_algorithms(const RoundsOptions& options, const NamedProblem& problem, RoundsSettings& settings) {
  std::vector<const Algorithm*> algorithms;
  const auto choose = [&](std::string_view name) {
    algorithms.push_back(&cli::parse_option("--algorithm", [&] {
                            return std::ref(methods::rounds::find_algorithm(name));
                          }).get());
  };
  if (options.algorithms.empty())
    for (const std::string_view name : problem.algorithms) choose(name);
  else
    for (const std::string& name : options.algorithms) choose(name);
  refuse_options_of_other_algorithms(options, algorithms);
  for (const Algorithm* const algorithm : algorithms)
    for (const methods::rounds::Settings& one : all_settings_for(*algorithm, options))
      settings.algorithms.push_back(cli::parse_option(fmt::format("--algorithm {}", algorithm->name), [&] {
        return methods::rounds::completed(one, *settings.problem);
      }));
}

methods::rounds::Target checked_target(const RoundsOptions& options, bool saddle) {
  cli::check_range("--rounds", options.rounds, 1, kMostRounds);
  if (saddle && options.error)
    throw ConfigError("--error: algorithms for saddle points end with their stages: give --stages");
  const double error = options.error.value_or(1e-8);
  if (!std::isfinite(error) || error <= 0 || error >= 1)
    throw ConfigError(fmt::format("--error is {}, but must lie between 0 and 1", error));
  return {.error = saddle ? 0 : error, .rounds = options.rounds};
}

}  // namespace

RoundsSettings check(const RoundsOptions& options, const LaunchEnvironment& environment) {
  RoundsSettings settings{.alpha = options.alpha, .seed = options.seed, .backend = options.backend};
  settings.workers = cli::checked_workers(options.workers, 1, environment);
  const NamedProblem& problem = cli::parse_option(
      "--problem", [&] { return std::ref(find_named(problems(), options.problem, "problem")); });
  refuse_options_of_other_problems(options, problem);
  if (!options.backend.empty())
    cli::parse_option("--backend", [&] { return find_backend(options.backend).name; });
  if (options.network)
    settings.network = cli::checked_network(*options.network, options.backend, settings.workers);
  settings.timeout_seconds = cli::checked_timeout(options.timeout, "120s");
  if (environment.rank == 0) {  // which is the one that writes
    settings.json = cli::checked_output_path("--json", options.json);
    settings.plot = cli::checked_picture_path("--plot", options.plot);
    cli::refuse_shared_outputs({{"--json", settings.json}, {"--plot", settings.plot}});
  }
  cli::parse_option("--problem " + options.problem, [&] {
    problem.draw(options, settings);
    return 0;
  });
  if (settings.workers > settings.problem->clients())
    throw ConfigError(
        fmt::format("--workers: {} clients cannot be dealt to {} ranks: give at most as many ranks",
                    settings.problem->clients(), settings.workers));
  settings.target = checked_target(options, settings.auc != nullptr);
  choose_algorithms(options, problem, settings);
  return settings;
}

}  // namespace dear::rounds_command
