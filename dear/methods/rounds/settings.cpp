#include "dear/methods/rounds/settings.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::rounds {
namespace {

constexpr double kLeastProbability = 1e-6;  // each local step draws a coin

void check_number(const char* name, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw ConfigError(fmt::format("the {} is {}, but must be from {} to {}", name, value, least, most));
}

void complete_cohort(Settings& settings, const Problem& problem) {
  const Algorithm& algorithm = *settings.algorithm;
  const int clients = problem.clients();
  const bool shifts = algorithm.control == Control::shifts;
  if (clients < 1 || (shifts && clients < 2))
    throw ConfigError(fmt::format("{} takes at least {} clients, but there are {}", algorithm.name,
                                  shifts ? 2 : 1, clients));
  if (settings.cohort == 0) settings.cohort = clients;
  const int least = shifts ? 2 : 1;
  if (settings.cohort < least || settings.cohort > clients)
    throw ConfigError(fmt::format("a cohort of {} of {} clients cannot be: give from {} to {} for {}",
                                  settings.cohort, clients, least, clients, algorithm.name));
  if (algorithm.cohort == Cohort::all && settings.cohort != clients)
    throw ConfigError(
        fmt::format("{} needs all {} clients in each round: leave out the cohort of {}, or choose "
                    "tamuna, fedavg or scaffold",
                    algorithm.name, clients, settings.cohort));
}

void complete_owners(Settings& settings, const Problem& problem) {
  const Algorithm& algorithm = *settings.algorithm;
  if (algorithm.sent == Sent::whole) {
    if (settings.owners != 0 && settings.owners != settings.cohort)
      throw ConfigError(fmt::format("clients of {} send all coordinates: leave out the sparsity of {}",
                                    algorithm.name, settings.owners));
    settings.owners = settings.cohort;
    return;
  }
  if (settings.owners == 0)
    settings.owners = best_owners(settings.cohort, problem.dimension(), settings.alpha);
  if (settings.owners < 2 || settings.owners > settings.cohort)
    throw ConfigError(fmt::format(
        "{} of {} clients cannot send each coordinate: give from 2 to {}; with 1 control variates "
        "would never change",
        settings.owners, settings.cohort, settings.cohort));
}

// Parameters of Scaffnew, by which others get as many local steps.
void complete_shifts(Settings& settings, const Problem& problem) {
  const int clients = problem.clients();
  const bool shifts = settings.algorithm->control == Control::shifts;
  const int owners = shifts ? settings.owners : clients;
  const bool known = problem.constants().convexity > 0;
  if (shifts) {
    const double most = largest_chi(clients, owners);
    if (settings.chi == 0) settings.chi = most;
    check_number("chi", settings.chi, 0, 1e6);
    if (settings.chi > most * (1 + 1e-12) && !settings.beyond_theory)
      throw ConfigError(
          fmt::format("a chi of {:.6g} is above {:.6g}, with which alone convergence is proven for "
                      "{} owners of {} clients: give at most that, or force it",
                      settings.chi, most, owners, clients));
  }
  if (settings.probability == 0) {
    if (clients < 2 || (!known && (shifts || settings.every == 0)))
      throw ConfigError(
          "no number of local steps follows from a problem that is not known to be strongly convex: give it");
    if (known)
      settings.probability = best_probability(
          clients, owners, shifts ? settings.chi : largest_chi(clients, owners), problem.constants());
  }
}

void complete_steps(Settings& settings, const Problem& problem) {
  const Algorithm& algorithm = *settings.algorithm;
  if (algorithm.steps == LocalSteps::one) {
    if (settings.every > 1)
      throw ConfigError(fmt::format("clients of {} make one step a round: leave out the {} steps",
                                    algorithm.name, settings.every));
    settings.every = 1;
    settings.probability = 1;
    return;
  }
  if (algorithm.goal == Goal::saddle) {
    if (settings.every == 0) settings.every = 8;
    settings.probability = 1.0 / static_cast<double>(std::max<std::int64_t>(settings.every, 1));
  } else if (settings.every == 0 || algorithm.steps == LocalSteps::geometric) {
    complete_shifts(settings, problem);
    check_number("probability of a round's end", settings.probability, kLeastProbability, 1);
    if (algorithm.steps == LocalSteps::geometric && settings.every != 0)
      throw ConfigError(fmt::format("clients of {} make random numbers of steps: give their mean, not {}",
                                    algorithm.name, settings.every));
    if (settings.every == 0) settings.every = std::llround(1 / settings.probability);
  } else {
    settings.probability = 1.0 / static_cast<double>(settings.every);
  }
  if (settings.every < 1)
    throw ConfigError(fmt::format("{} local steps a round cannot be: give at least 1", settings.every));
}

void complete_gamma(Settings& settings, const Problem& problem) {
  const Constants constants = problem.constants();
  const bool directions = settings.algorithm->control == Control::directions;
  if (settings.algorithm->goal == Goal::saddle) {
    if (settings.gamma == 0) settings.gamma = 0.1;
    if (const double limit = problem.step_limit();
        limit > 0 && settings.gamma >= limit && !settings.beyond_theory)
      throw ConfigError(
          fmt::format("a step size of {:.6g} makes the dual variable diverge: give less than {:.6g}",
                      settings.gamma, limit));
  } else if (settings.gamma == 0) {
    if (constants.smoothness <= 0)
      throw ConfigError("no step size follows from a problem whose smoothness is not known: give one");
    // Scaffold: 1 / (K L). The bound of its theory, 1 / (81 K L), is far from what works.
    settings.gamma =
        directions ? 1 / (constants.smoothness * static_cast<double>(settings.every)) : best_gamma(constants);
  }
  if (!std::isfinite(settings.gamma) || settings.gamma <= 0)
    throw ConfigError(fmt::format("a step size of {} cannot be: give one above 0", settings.gamma));
  if (settings.algorithm->goal == Goal::minimum && constants.smoothness > 0 &&
      settings.gamma * constants.smoothness >= 2 && !settings.beyond_theory)
    throw ConfigError(
        fmt::format("a step size of {:.6g} diverges on a function that is {:.6g}-smooth: give less "
                    "than {:.6g}, or force it",
                    settings.gamma, constants.smoothness, 2 / constants.smoothness));
}

void check_stages(const Stages& stages) {
  if (stages.count < 1 || stages.steps < 1)
    throw ConfigError(
        fmt::format("{} stages of {} steps cannot be: give at least 1 of each", stages.count, stages.steps));
  check_number("divisor of step sizes between stages", stages.shrink, 1, 1e6);
  check_number("proximal parameter", stages.proximal, 1e-9, 1e300);
}

}  // namespace

Settings completed(Settings settings, const Problem& problem) {
  if (settings.algorithm == nullptr) throw ConfigError("no algorithm was chosen: choose one");
  if (problem.dimension() < 1)
    throw ConfigError("a problem of dimension 0 has nothing to find: give at least 1");
  const bool saddle = problem.primal() < problem.dimension();
  if ((settings.algorithm->goal == Goal::saddle) != saddle)
    throw ConfigError(fmt::format("{} seeks a {}, but the problem has a {}: choose {}",
                                  settings.algorithm->name, saddle ? "minimum" : "saddle point",
                                  saddle ? "saddle point" : "minimum",
                                  saddle ? "coda or codasca" : "another algorithm"));
  check_number("weight of reals that are sent down", settings.alpha, 0, 1);
  check_number("probability of absence", settings.absence, 0, 0.99);
  if (settings.batch < 0)
    throw ConfigError(
        fmt::format("a batch of {} samples cannot be: give at least 1, or 0 for all", settings.batch));
  complete_cohort(settings, problem);
  complete_owners(settings, problem);
  complete_steps(settings, problem);
  complete_gamma(settings, problem);
  if (saddle) check_stages(settings.stages);
  return settings;
}

std::string describe(const Settings& settings) {
  const Stages& stages = settings.stages;
  return fmt::format(
      "{}, cohort {}, owners {}, gamma {}, probability {}, chi {}, every {}, absence {}, batch {}, "
      "seed {}, stages {} of {} by {} around {}",
      settings.algorithm->name, settings.cohort, settings.owners, settings.gamma, settings.probability,
      settings.chi, settings.every, settings.absence, settings.batch, settings.seed, stages.count,
      stages.steps, stages.shrink, stages.proximal);
}

}  // namespace dear::methods::rounds
