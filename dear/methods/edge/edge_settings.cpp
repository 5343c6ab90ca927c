#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/fleet.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/schedulers.h"

namespace dear::methods::edge {

void check(const EdgeSettings& settings, const Classification& task) {
  const int devices = task.shape().devices;
  const Aggregator& aggregator = find_aggregator(settings.aggregator);
  find_quantiser(aggregator.quantiser, settings.quantiser);
  find_named(allocators(), settings.allocator, "allocator");
  check(settings.cell);
  if (aggregator.way == Way::analogue) check(settings.air);
  if (aggregator.way == Way::shifted) {
    if (settings.owners != 0 && (settings.owners < 2 || settings.owners > settings.cohort))
      throw ConfigError(
          fmt::format("{} owners of an element in a cohort of {}: give from 2 to {}, or 0 for all",
                      settings.owners, settings.cohort, settings.cohort));
    if (settings.deadline_seconds > 0 || find_joint_scheduler(settings.scheduler) != nullptr)
      throw ConfigError(
          "tamuna waits for all devices of its cohort, whose shifts balance each other: leave the deadline "
          "out, and take a "
          "scheduler of a cohort");
  }
  const JointScheduler* const joint = find_joint_scheduler(settings.scheduler);
  if (joint == nullptr) {
    find_scheduler(settings.scheduler);
    if (settings.cohort < 1 || settings.cohort > devices)
      throw ConfigError(fmt::format("a cohort of {} of {} devices cannot be: give from 1 to {}",
                                    settings.cohort, devices, devices));
  } else if (!(settings.budget_seconds > 0)) {
    throw ConfigError(
        fmt::format("the scheduler {} fills a budget of seconds a round: give one", settings.scheduler));
  }
  if (settings.local_steps < 1 || settings.batch < 0 || settings.rounds < 1)
    throw ConfigError(fmt::format("{} rounds of {} steps on {} samples cannot be: give at least 1 of each",
                                  settings.rounds, settings.local_steps, settings.batch));
  const std::pair<const char*, double> amounts[] = {
      {"step size", settings.step_size},
      {"number of cycles a sample", settings.cycles_per_sample},
      {"lowest frequency", settings.slowest_hz},
      {"rate of the backhaul", settings.backhaul_bits_per_second}};
  for (const auto& [name, value] : amounts)
    if (!std::isfinite(value) || value <= 0)
      throw ConfigError(fmt::format("the {} is {}, but must be a finite number above 0", name, value));
  if (!std::isfinite(settings.fastest_hz) || settings.fastest_hz < settings.slowest_hz)
    throw ConfigError(fmt::format("devices between {} Hz and {} Hz cannot be: give the lower first",
                                  settings.slowest_hz, settings.fastest_hz));
  const std::pair<const char*, double> from_0[] = {{"random share of computing", settings.random_share},
                                                   {"budget of a round", settings.budget_seconds},
                                                   {"deadline", settings.deadline_seconds},
                                                   {"limit of seconds", settings.seconds},
                                                   {"capacitance", settings.capacitance}};
  for (const auto& [name, value] : from_0)
    if (!std::isfinite(value) || value < 0)
      throw ConfigError(fmt::format("the {} is {}, but must be a finite number from 0 on", name, value));
  if (aggregator.way == Way::hierarchical && (settings.cells < 1 || settings.cells > devices))
    throw ConfigError(fmt::format("{} devices cannot be dealt to {} cells: give from 1 to {}", devices,
                                  settings.cells, devices));
  if (settings.intra_rounds < 1)
    throw ConfigError(fmt::format("{} rounds in a cell cannot be: give at least 1", settings.intra_rounds));
  if (aggregator.way == Way::gossip) make_graph(settings.graph, devices, settings.density, settings.seed);
  const Fleet fleet(settings, task, 1);
  double least = INFINITY;
  for (int device = 0; device < devices; ++device)
    least = std::min(least, fleet.least_compute_seconds(device));
  if (settings.deadline_seconds > 0 && settings.deadline_seconds < least)
    throw ConfigError(fmt::format(
        "no device computes within the deadline of {:g} s, the fastest takes {:.3g} s: give more time",
        settings.deadline_seconds, least));
}

std::string trace_header() {
  return "run,round,seconds,participants,bits_up,channel_uses,joules,mean_age,loss,accuracy\n";
}

std::string trace_lines(std::string_view name, const std::vector<EdgeRound>& rounds) {
  std::string lines;
  for (const EdgeRound& one : rounds)
    lines += fmt::format("{},{},{:.9g},{},{:.9g},{:.9g},{:.9g},{:.6g},{:.9g},{:.6g}\n", name, one.number,
                         one.seconds, fmt::join(one.participants, " "), one.bits_up, one.channel_uses,
                         one.joules, one.mean_age, one.loss, one.accuracy);
  return lines;
}

}  // namespace dear::methods::edge
