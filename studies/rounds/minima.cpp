#include "studies/rounds/minima.h"

#include "studies/training/threads.h"
#include <cmath>
#include <functional>
#include <memory>
#include <span>

#include "dear/comm/group/single.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/methods/rounds/rounds.h"

namespace dear::studies::rounds {
namespace {

using methods::rounds::Problem;
using methods::rounds::Rounds;
using methods::rounds::Settings;

struct Asked {
  std::string part, algorithm;
  LogisticShape problem{};
  Settings settings{};
  double error = 1e-8;
  int draws = 1;
};

MinimumRun play(const Asked& asked) {
  const std::unique_ptr<Problem> problem = methods::rounds::make_logistic(asked.problem);
  const std::vector<double> optimum = problem->optimum();
  Settings settings = asked.settings;
  settings.algorithm = &methods::rounds::find_algorithm(asked.algorithm);
  settings = methods::rounds::completed(settings, *problem);
  const bool geometric = settings.algorithm->steps == methods::rounds::LocalSteps::geometric;
  MinimumRun run{.part = asked.part,
                 .algorithm = asked.algorithm,
                 .problem = asked.problem,
                 .cohort = settings.cohort,
                 .owners = settings.owners,
                 .absence = settings.absence,
                 .steps_a_round = geometric ? 1 / settings.probability : static_cast<double>(settings.every)};
  for (int draw = 1; draw <= asked.draws; ++draw) {
    settings.seed = static_cast<std::uint64_t>(draw);
    Rounds rounds({comm::make_single(), {}}, *problem, settings);
    const methods::rounds::Outcome outcome = methods::rounds::run_to(rounds, optimum, {.error = asked.error});
    const Counts& counts = outcome.last.counts;
    run.rounds += static_cast<double>(counts.rounds) / asked.draws;
    run.up += static_cast<double>(counts.up) / asked.draws;
    run.down += static_cast<double>(counts.down) / asked.draws;
    run.error = std::max(run.error, outcome.last.error);
    run.control_sum = std::max(run.control_sum, outcome.control_sum);
    if (draw == 1 || outcome.end != End::reached) run.end = outcome.end;
    if (draw == 1)
      for (const methods::rounds::Milestone& one : outcome.milestones)
        if (one.counts.rounds > 0 && std::isfinite(one.error))
          run.by_reals.emplace_back(static_cast<double>(one.counts.up), one.error);
  }
  return run;
}

std::vector<Asked> all_asked(const MinimaOptions& options) {
  std::vector<Asked> all;
  const auto add = [&](const char* part, const LogisticShape& problem, const char* algorithm,
                       const Settings& settings = {}) {
    all.push_back({part, algorithm, problem, settings, options.error});
  };
  // Long ones first, so that threads end alike.
  for (auto shape = options.large.rbegin(); shape != options.large.rend(); ++shape) {
    add("large", *shape, "gd");
    add("large", *shape, "scaffnew");
    for (const int owners : options.large_owners)
      add("large", *shape, "compressed-scaffnew", {.owners = owners});
    add("large", *shape, "tamuna", {.cohort = options.large_cohort, .owners = 4});
  }
  for (auto condition = options.conditions.rbegin(); condition != options.conditions.rend(); ++condition) {
    LogisticShape shape = options.small;
    shape.condition = *condition;
    for (const char* const algorithm : {"gd", "scaffnew", "compressed-scaffnew"})
      add("condition", shape, algorithm);
  }
  for (const int cohort : options.cohorts)
    add("cohort", options.large.front(), "tamuna", {.cohort = cohort, .owners = 4});
  const int half = options.small.clients / 2;
  add("methods", options.small, "gd");
  add("methods", options.small, "local-sgd");
  add("methods", options.small, "fedavg", {.cohort = half});
  add("methods", options.small, "scaffold", {.cohort = half});
  add("methods", options.small, "scaffnew");
  add("methods", options.small, "compressed-scaffnew");
  add("methods", options.small, "tamuna", {.cohort = half});
  add("absence", options.small, "scaffnew", {.absence = options.absence});
  add("absence", options.small, "tamuna", {.cohort = half, .absence = options.absence});
  add("absence", options.small, "gd", {.absence = options.absence});
  add("owners", options.small, "gd");
  for (const int owners : options.owners) {
    add("owners", options.small, "compressed-scaffnew", {.owners = owners});
    all.back().draws = options.draws;
  }
  for (Asked& one : all)
    if (one.part == "owners") one.error = options.small_error;
  return all;
}

double psi_of(const Rounds& run, const Problem& problem, const Settings& settings,
              std::span<const double> best, const std::vector<std::vector<double>>& shifts_there) {
  const double n = problem.clients();
  double points = 0, shifts = 0;
  for (int client = 0; client < problem.clients(); ++client) {
    const std::vector<double> control = run.control_of(client);
    for (std::size_t i = 0; i < best.size(); ++i) {
      points += std::pow(run.model()[i] - best[i], 2);
      shifts += std::pow(control[i] - shifts_there[static_cast<std::size_t>(client)][i], 2);
    }
  }
  return points / settings.gamma + settings.gamma / (std::pow(settings.probability, 2) * settings.chi) *
                                       (n - 1) / (settings.owners - 1) * shifts;
}

// The slope of logarithms against the round, by least squares.
double log_slope(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(i) - (count - 1) / 2;
    xy += x * std::log(values[i]);
    xx += x * x;
  }
  return xy / xx;
}

// The bound of chi counts so many clients.
RateRun rate_of_run(const MinimaOptions& options, RateRun run, int counted) {
  const auto problem =
      methods::rounds::make_quadratic({.clients = run.clients, .dimension = 12, .condition = 50, .seed = 4});
  Settings settings{.algorithm = &methods::rounds::find_algorithm("tamuna"),
                    .cohort = run.cohort,
                    .owners = run.owners,
                    .probability = run.probability,
                    .beyond_theory = true};
  settings = methods::rounds::completed(settings, *problem);
  settings.chi = run.of_largest_chi * methods::rounds::largest_chi(counted, run.owners);
  run.probability = settings.probability;
  const double p = settings.probability;
  const double tau = methods::rounds::rate_of({.clients = run.clients,
                                               .owners = run.owners,
                                               .gamma = settings.gamma,
                                               .probability = p,
                                               .chi = settings.chi},
                                              problem->constants());
  // A round has t steps with probability p (1-p)^(t-1).
  run.promised = -std::log(p * tau / (1 - (1 - p) * tau));
  const std::vector<double> best = problem->optimum();
  std::vector<std::vector<double>> shifts(static_cast<std::size_t>(run.clients),
                                          std::vector<double>(best.size()));
  for (int client = 0; client < run.clients; ++client)
    problem->gradient(client, best, {}, shifts[static_cast<std::size_t>(client)]);
  std::vector<double> mean(static_cast<std::size_t>(options.rate_rounds) + 1);
  for (int seed = 1; seed <= options.rate_runs; ++seed) {
    settings.seed = static_cast<std::uint64_t>(seed);
    Rounds rounds({comm::make_single(), {}}, *problem, settings);
    for (std::size_t round = 0; round < mean.size(); ++round) {
      if (round > 0) rounds.next();
      mean[round] += psi_of(rounds, *problem, settings, best, shifts) / options.rate_runs;
    }
  }
  run.seen = -log_slope(mean);
  return run;
}

}  // namespace

std::vector<const MinimumRun*> MinimaFindings::part(std::string_view name) const {
  std::vector<const MinimumRun*> all;
  for (const MinimumRun& one : runs)
    if (one.part == name) all.push_back(&one);
  return all;
}

MinimaFindings find_minima(const MinimaOptions& options, const studies::Progress& progress) {
  MinimaFindings findings;
  const std::vector<Asked> asked = all_asked(options);
  findings.runs.resize(asked.size());
  training::for_each_in_threads(
      asked.size(), [&](std::size_t i) { findings.runs[i] = play(asked[i]); }, "minima", progress);

  constexpr int kClients = 10;
  for (const auto& [cohort, owners] : {std::pair{10, 10}, {10, 5}, {10, 3}, {10, 2}, {5, 2}, {2, 2}})
    findings.rates.push_back({.clients = kClients, .cohort = cohort, .owners = owners});
  for (const double chi : {0.5, 1.0, 2.2})
    findings.beyond.push_back(
        {.clients = kClients, .cohort = kClients, .owners = 5, .probability = 1, .of_largest_chi = chi});
  for (const double probability : {0.5, 1.0})
    findings.of_a_cohort.push_back(
        {.clients = 2 * kClients, .cohort = 2, .owners = 2, .probability = probability});
  std::vector<std::pair<RateRun*, int>> runs;
  for (std::vector<RateRun>* const list : {&findings.rates, &findings.beyond, &findings.of_a_cohort})
    for (RateRun& one : *list)
      runs.emplace_back(&one, list == &findings.of_a_cohort ? one.cohort : one.clients);
  training::for_each_in_threads(
      runs.size(),
      [&](std::size_t i) { *runs[i].first = rate_of_run(options, *runs[i].first, runs[i].second); }, "rates",
      progress);
  return findings;
}

}  // namespace dear::studies::rounds
