#include "studies/rounds/areas.h"

#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/methods/rounds/rounds.h"

namespace dear::studies::rounds {
namespace {

using methods::rounds::AucProblem;
using methods::rounds::AucShape;
using methods::rounds::Settings;

double mean_of_seeds(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of the weights alone, which are what scores.
double relative_distance(const std::vector<double>& optimum, std::span<const double> model) {
  double squared = 0, norm = 0;
  for (std::size_t k = 0; k + 3 < optimum.size(); ++k) {
    squared += std::pow(model[k] - optimum[k], 2);
    norm += std::pow(optimum[k], 2);
  }
  return std::sqrt(squared / norm);
}

struct Ended {
  double rounds = 0, reals = 0, area = 0, best = 0, distance = 0;
  std::vector<std::pair<double, double>> by_rounds;
};

Ended train_for_auc(const AucShape& shape, Settings settings, const std::string& algorithm, bool look) {
  const AucProblem problem(shape);
  settings.algorithm = &methods::rounds::find_algorithm(algorithm);
  settings.seed = shape.seed;
  methods::rounds::Rounds rounds({comm::make_single(), {}}, problem,
                                 methods::rounds::completed(settings, problem));
  Ended ended;
  std::int64_t due = 1;
  while (rounds.next()) {
    const std::int64_t made = rounds.counts().rounds;
    if (!look || made < due) continue;
    ended.by_rounds.emplace_back(static_cast<double>(made), problem.auc_of(rounds.model()));
    due = made + std::max<std::int64_t>(1, made / 10);
  }
  const std::vector<double> optimum = problem.optimum();
  ended.rounds = static_cast<double>(rounds.counts().rounds);
  ended.reals = static_cast<double>(rounds.counts().up);
  ended.area = problem.auc_of(rounds.model());
  ended.best = problem.auc_of(optimum);
  ended.distance = relative_distance(optimum, rounds.model());
  return ended;
}

}  // namespace

double AreaRun::mean_area() const { return mean_of_seeds(areas); }
double AreaRun::mean_best() const { return mean_of_seeds(best_areas); }
double AreaRun::mean_distance() const { return mean_of_seeds(distances); }

const AreaRun& AreasFindings::run(const std::string& algorithm, Shards shards, std::int64_t every,
                                  bool exact) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const AreaRun& one) {
    return one.algorithm == algorithm && one.shards == shards && one.every == every && one.exact == exact;
  });
  if (found == runs.end())
    throw ConfigError(fmt::format("{} with {} steps a round was not studied: add it", algorithm, every));
  return *found;
}

AreasFindings find_areas(const AreasOptions& options, const studies::Progress& progress) {
  if (options.seeds < 1 || options.client_seeds < 1)
    throw ConfigError(
        fmt::format("{} and {} seeds train nothing: one at least", options.seeds, options.client_seeds));
  AreasFindings findings;
  for (const bool exact : {false, true})
    for (const Shards shards : {Shards::alike, Shards::sorted})
      for (const char* const algorithm : {"coda", "codasca"})
        for (const std::int64_t every : options.every)
          findings.runs.push_back({.algorithm = algorithm, .shards = shards, .every = every, .exact = exact});
  training::for_each_in_threads(
      findings.runs.size(),
      [&](std::size_t i) {
        AreaRun& run = findings.runs[i];
        AucShape shape = options.shape;
        shape.shards = run.shards;
        const Settings settings{.every = run.every,
                                .batch = run.exact ? 0 : options.batch,
                                .stages = {.steps = run.exact ? options.exact_steps : options.steps}};
        for (int seed = 1; seed <= (run.exact ? 1 : options.seeds); ++seed) {
          shape.seed = static_cast<std::uint64_t>(seed);
          Ended ended = train_for_auc(shape, settings, run.algorithm, seed == 1);
          run.rounds = ended.rounds;
          run.reals = ended.reals;
          run.areas.push_back(ended.area);
          run.best_areas.push_back(ended.best);
          run.distances.push_back(ended.distance);
          if (seed == 1) run.by_rounds = std::move(ended.by_rounds);
        }
      },
      "areas", progress);

  const int samples = options.shape.clients * options.shape.rows;
  findings.noise.resize(options.clients.size());
  training::for_each_in_threads(
      options.clients.size(),
      [&](std::size_t i) {
        AucShape shape = options.shape;
        shape.clients = options.clients[i];
        shape.rows = samples / shape.clients;
        NoiseRun& noise = findings.noise[i];
        noise.clients = shape.clients;
        for (int seed = 1; seed <= options.client_seeds; ++seed) {
          shape.seed = static_cast<std::uint64_t>(seed);
          const Ended ended = train_for_auc(
              shape, {.every = 8, .batch = options.batch, .stages = {.count = 1, .steps = options.steps}},
              "coda", false);
          noise.squared_distance += std::pow(ended.distance, 2) / options.client_seeds;
        }
      },
      "clients", progress);
  return findings;
}

}  // namespace dear::studies::rounds
