#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/fleet.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/projected_sums.h"
#include "dear/methods/edge/schedulers.h"

namespace dear::methods::edge {
namespace {

constexpr JsonFormat kDevicesFormat = {.name = "dear-edge-devices", .version = 1, .kind = "file of devices"};

}  // namespace

void check(const EdgeSettings& settings, const Classification& task) {
  const int devices = task.shape().devices;
  const Aggregator& aggregator = find_aggregator(settings.aggregator);
  find_quantiser(aggregator.quantiser, settings.quantiser);
  find_named(allocators(), settings.allocator, "allocator");
  check(settings.cell);
  if (aggregator.way == Way::analogue) check(settings.air);
  if (settings.aggregator == "a-dsgd")
    static_cast<void>(Projection::symbols_of(task.dimension(), settings.symbol_share));
  if (settings.aggregator == "diloco" &&
      (!(settings.outer_step_size > 0) || !std::isfinite(settings.outer_step_size) ||
       !(settings.outer_momentum >= 0) || settings.outer_momentum >= 1))
    throw ConfigError(
        fmt::format("an outer step size of {} with momentum {} cannot be: give a finite one above 0, "
                    "and a momentum from 0 to below 1",
                    settings.outer_step_size, settings.outer_momentum));
  if (aggregator.way == Way::shifted) {
    if (settings.owners != 0 && (settings.owners < 2 || settings.owners > settings.cohort))
      throw ConfigError(
          fmt::format("{} owners of an element in a cohort of {}: give from 2 to {}, or 0 for all",
                      settings.owners, settings.cohort, settings.cohort));
    if (settings.deadline_seconds > 0 || find_joint_scheduler(settings.scheduler) != nullptr)
      throw ConfigError(
          "tamuna waits for all devices of its cohort, whose shifts balance each other: leave the deadline "
          "out, and take a scheduler of a cohort");
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
  if (!settings.devices.empty() && std::ssize(settings.devices) != devices)
    throw ConfigError(
        fmt::format("{} devices learn, and places and processors are given of {}: give those of each",
                    devices, settings.devices.size()));
  if (!settings.devices.empty() && aggregator.way == Way::hierarchical)
    throw ConfigError(
        "small cells have places of their own, which are drawn: leave the devices out, or take another "
        "aggregator");
  for (const EdgeDevice& one : settings.devices)
    for (const double value : {one.distance_m, one.frequency_hz})
      if (!std::isfinite(value) || value <= 0)
        throw ConfigError(fmt::format("a device {} m away with {} Hz cannot be: give finite numbers above 0",
                                      one.distance_m, one.frequency_hz));
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

std::vector<EdgeDevice> parse_devices(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kDevicesFormat);
  const JsonField file(document, source);
  file.expect_members({"format", "version", "devices"});
  std::vector<EdgeDevice> devices;
  for (const JsonField& one : file.member("devices").elements()) {
    one.expect_members({"distance_m", "frequency_hz"});
    const EdgeDevice& device =
        devices.emplace_back(EdgeDevice{.distance_m = one.member("distance_m").number_from_0(),
                                        .frequency_hz = one.member("frequency_hz").number_from_0()});
    if (device.distance_m == 0 || device.frequency_hz == 0)
      one.fail("a distance and a frequency must be above 0");
  }
  if (devices.empty()) file.member("devices").fail("must have a device");
  return devices;
}

std::vector<EdgeDevice> read_devices(const std::string& path) {
  return parse_devices(os::read_file(path), path);
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
