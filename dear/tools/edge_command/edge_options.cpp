#include "dear/tools/edge_command/edge_options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/schedulers.h"
#include "dear/tools/options/option_checks.h"

namespace dear::edge_command {
namespace {

namespace edge = methods::edge;

using Unit = std::pair<std::string_view, double>;

// The number before one of these units, and what the unit is.
template <std::size_t N>
std::pair<double, Unit> split(const std::string& text, const std::array<Unit, N>& units,
                              const char* expected) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (error == std::errc{} && std::isfinite(number))
    for (const Unit& unit : units)
      if (unit.first == rest) return {number, unit};
  throw ConfigError(fmt::format("'{}' must be {}", text, expected));
}

int whole(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most) {
  cli::check_range(option, value, least, most);
  return static_cast<int>(value);
}

double hertz(std::string_view option, const std::string& text) {
  return cli::parse_option(option, [&] { return parse_hertz(text); });
}
double seconds(std::string_view option, const std::string& text) {
  return text.empty() ? 0 : cli::parse_option(option, [&] { return parse_seconds(text); });
}

constexpr std::int64_t kMostDevices = 10'000;
constexpr std::int64_t kMostNumbers = 100'000'000;  // features of all samples, and of all models

// The entry's own name, which outlives the options.
template <typename Table>
std::string_view name_in(std::string_view option, const Table& table, const std::string& name,
                         const char* kind) {
  return cli::parse_option(option, [&] { return find_named(table, name, kind).name; });
}

std::string_view scheduler_name(const std::string& name) {
  if (const edge::JointScheduler* const joint = edge::find_joint_scheduler(name)) return joint->name;
  return name_in("--scheduler", edge::schedulers(), name, "scheduler");
}

edge::ClassificationShape shape_of(const RunOptions& options) {
  edge::ClassificationShape shape{.separation = options.separation, .seed = options.seed};
  shape.devices = whole("--devices", options.devices, 1, kMostDevices);
  shape.samples = whole("--samples", options.samples, 1, 1'000'000);
  shape.classes = whole("--classes", options.classes, 2, 1000);
  shape.features = whole("--features", options.features, 1, 100'000);
  if (options.devices * options.samples * options.features > kMostNumbers)
    throw ConfigError(
        fmt::format("--samples: {} devices with {} samples of {} features are over {} numbers: "
                    "give fewer",
                    options.devices, options.samples, options.features, kMostNumbers));
  if (options.model != "logistic" && options.model != "mlp")
    throw ConfigError("--model: " + no_such("model", options.model, {"logistic", "mlp"}));
  if (options.model == "mlp") shape.hidden = whole("--hidden", options.hidden, 1, 10'000);
  shape.split =
      cli::parse_option("--split", [&] { return find_named(edge::splits(), options.split, "split"); }).split;
  return shape;
}

}  // namespace

double parse_hertz(const std::string& text) {
  static constexpr std::array<Unit, 4> kUnits{{{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}}};
  const auto [number, unit] = split(text, kUnits, "a frequency above 0, as 10MHz");
  if (number <= 0) throw ConfigError(fmt::format("'{}' must be a frequency above 0, as 10MHz", text));
  return number * unit.second;
}

double parse_watts(const std::string& text) {
  static constexpr std::array<Unit, 3> kUnits{{{"dBm", 0}, {"W", 1}, {"mW", 1e-3}}};
  const auto [number, unit] = split(text, kUnits, "a power, as 20dBm or 0.1W");
  const double watts = unit.second == 0 ? std::pow(10, number / 10) / 1000 : number * unit.second;
  if (!(watts > 0) || !std::isfinite(watts))
    throw ConfigError(fmt::format("'{}' must be a power above 0, as 20dBm or 0.1W", text));
  return watts;
}

edge::Cell check(const CellOptions& options) {
  const auto watts = [](std::string_view option, const std::string& text) {
    return cli::parse_option(option, [&] { return parse_watts(text); });
  };
  edge::Cell cell{.bandwidth_hz = hertz("--bandwidth", options.bandwidth),
                  .power_watts = watts("--power", options.power),
                  .down_power_watts = watts("--base-power", options.down_power),
                  .noise_watts_per_hz = watts("--noise", options.noise),
                  .nearest_m = options.nearest_m,
                  .farthest_m = options.farthest_m,
                  .path_loss = name_in("--path-loss", edge::path_losses(), options.path_loss, "path loss")};
  edge::check(cell);
  return cell;
}

PlanSettings check(const PlanOptions& options) {
  PlanSettings settings;
  if (!options.file.empty()) {
    if (options.draws)
      throw ConfigError(fmt::format(
          "--groups and the other options of drawn groups do not go with the file {}: leave out one of both",
          options.file));
    settings.file = edge::read_groups(options.file);
    settings.described = options.file;
  } else {
    edge::GroupsShape shape{.cell = check(options.cell),
                            .parameters = options.parameters,
                            .bits_per_parameter = options.bits,
                            .cycles_per_parameter = options.cycles,
                            .slowest_hz = hertz("--slowest", options.slowest),
                            .fastest_hz = hertz("--fastest", options.fastest),
                            .seed = options.seed};
    shape.groups = whole("--groups", options.groups, 1, kMostDevices);
    shape.workers = whole("--workers", options.workers, 1, kMostDevices);
    if (options.groups * options.workers > kMostDevices)
      throw ConfigError(fmt::format("--workers: {} groups of {} are over {} workers: give fewer",
                                    options.groups, options.workers, kMostDevices));
    settings.file.problem = edge::draw_groups(shape);
    settings.described = fmt::format("{} groups of {} in a cell, drawn with seed {}", options.groups,
                                     options.workers, options.seed);
  }
  edge::check(settings.file.problem);
  if (!settings.file.lost.empty()) {
    const std::size_t before = settings.file.problem.groups.size();
    settings.file.problem = edge::without(settings.file.problem, settings.file.lost);
    edge::check(settings.file.problem);
    settings.described += fmt::format(", without {} of {} groups, which lost a worker",
                                      before - settings.file.problem.groups.size(), before);
  }
  if (!options.deadline.empty()) settings.file.deadline_seconds = seconds("--deadline", options.deadline);
  settings.schemes = options.schemes;
  if (settings.schemes.empty())
    for (const edge::PabaScheme& scheme : edge::paba_schemes()) settings.schemes.emplace_back(scheme.name);
  for (const std::string& scheme : settings.schemes)
    name_in("--scheme", edge::paba_schemes(), scheme, "scheme");
  return settings;
}

RunSettings check(const RunOptions& given) {
  RunOptions options = given;
  std::vector<edge::EdgeDevice> devices;
  if (!options.file.empty()) {
    if (options.draws)
      throw ConfigError(
          fmt::format("--devices, --slowest and --fastest do not go with the file {}, which says them: leave "
                      "out one of both",
                      options.file));
    devices = edge::read_devices(options.file);
    options.devices = std::ssize(devices);
    options.cohort = std::min(options.cohort, options.devices);
    options.cells = std::min(options.cells, options.devices);
  }
  RunSettings settings{.shape = shape_of(options), .described = {}, .runs = {}};
  edge::EdgeSettings one{
      .scheduler = "random",
      .allocator = name_in("--allocator", edge::allocators(), options.allocator, "allocator"),
      .cell = check(options.cell),
      .step_size = options.step_size,
      .cycles_per_sample = options.cycles,
      .devices = std::move(devices),
      .slowest_hz = hertz("--slowest", options.slowest),
      .fastest_hz = hertz("--fastest", options.fastest),
      .random_share = options.random_share,
      .budget_seconds = seconds("--budget", options.budget),
      .deadline_seconds = seconds("--deadline", options.deadline),
      .quantiser = {.ratio = options.ratio},
      .air = {.threshold = options.threshold, .snr = std::pow(10, options.snr_db / 10)},
      .symbol_share = options.symbol_share,
      .outer_step_size = options.outer_step_size,
      .outer_momentum = options.momentum,
      .graph = name_in("--graph", edge::graph_kinds(), options.graph, "graph"),
      .density = options.density,
      .consensus = options.consensus,
      .backhaul_bits_per_second =
          cli::parse_option("--backhaul", [&] { return parse_bits_per_second(options.backhaul); }),
      .rounds = options.rounds,
      .seconds = seconds("--seconds", options.seconds),
      .seed = options.seed};
  one.cohort = whole("--cohort", options.cohort, 1, options.devices);
  one.local_steps = whole("--local-steps", options.local_steps, 1, 1'000'000);
  one.batch = whole("--batch", options.batch, 0, 1'000'000);
  one.quantiser.levels = whole("--levels", options.levels, 1, 1'000'000);
  one.cells = whole("--cells", options.cells, 1, options.devices);
  one.owners = whole("--owners", options.owners, 0, kMostDevices);
  one.intra_rounds = whole("--intra-rounds", options.intra_rounds, 1, 10'000);
  cli::check_range("--rounds", options.rounds, 1, 10'000'000);
  const edge::Classification task(settings.shape);
  if (settings.shape.devices * task.dimension() > kMostNumbers)
    throw ConfigError(
        fmt::format("--hidden: {} devices with {} parameters each are over {} numbers: give fewer",
                    settings.shape.devices, task.dimension(), kMostNumbers));
  settings.described = fmt::format(
      "{} of {} classes, {} parameters, on {} devices with {} samples each, {}",
      settings.shape.hidden == 0 ? "logistic regression"
                                 : fmt::format("a network with {} hidden units", settings.shape.hidden),
      settings.shape.classes, task.dimension(), settings.shape.devices, settings.shape.samples,
      settings.shape.split == edge::Split::iid ? "dealt at random" : "sorted by class");
  const std::vector<std::string> aggregators =
      options.aggregators.empty() ? std::vector<std::string>{"mean"} : options.aggregators;
  const std::vector<std::string> schedulers =
      options.schedulers.empty() ? std::vector<std::string>{"random"} : options.schedulers;
  bool chooses = false;
  for (const std::string& name : aggregators) {
    one.aggregator = name_in("--aggregator", edge::aggregators(), name, "aggregator");
    const edge::Way way = edge::find_aggregator(one.aggregator).way;
    const bool all = way == edge::Way::hierarchical || way == edge::Way::gossip;
    chooses = chooses || !all;
    for (const std::string& scheduler : schedulers) {
      one.scheduler = scheduler_name(scheduler);
      edge::check(one, task);
      settings.runs.push_back(one);
      if (all) break;  // every device takes part
    }
  }
  if (!chooses && !options.schedulers.empty())
    throw ConfigError(
        fmt::format("--scheduler: with aggregator {} every device takes part in each round: leave it out",
                    aggregators.front()));
  return settings;
}

}  // namespace dear::edge_command
