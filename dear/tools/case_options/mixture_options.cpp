#include "dear/tools/case_options/mixture_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/simulate.h"
#include "dear/tools/case_options/simulated_cases.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

constexpr std::array kTimes{"iteration",     "compute", "all-to-alls", "exposed of these",
                            "exposed comm.", "parts",   "ranges",      "speed-up"};

std::vector<std::string> times_of(const cases::MixtureCase& one) {
  const methods::moe::Times& times = one.passed.times;
  return {format_seconds(one.seconds()),
          format_seconds(times.compute_seconds),
          format_seconds(times.all_to_all_seconds),
          format_seconds(times.exposed_all_to_all_seconds),
          format_seconds(times.exposed_seconds),
          std::to_string(one.passed.most_parts()),
          std::to_string(one.passed.ranges.size()),
          fmt::format("{:.2f}", one.speed_up())};
}

}  // namespace

void MixtureOptions::add_overlap_to(CLI::App& command) {
  OptionAdder(command)
      .list("--overlap", overlaps, "NAME[,NAME...]",
            "With mixtures of experts, what all-to-alls go under: unoptimised (nothing), experts (parts of "
            "experts' tokens, as Tutel and FasterMoE), dw (weight gradients), partition (parts of the batch, "
            "of all layers), or lancet (both); speed-ups are over experts")
      ->default_str("all");
}

void MixtureOptions::add_to(CLI::App& command) {
  const OptionAdder add(command);
  add("--gate", gate, "NAME",
      "With mixtures of experts, which tokens get places: switch (the first), or batch-prioritized (the most "
      "probable of the whole batch: such a gate is not cut) (default switch)");
  add("--capacity-factor", capacity_factor, "FACTOR",
      "With mixtures of experts, their places, as a multiple of those that tokens dealt out evenly need "
      "(default 1.25)");
}

cases::MixtureNames MixtureOptions::names() const {
  const cases::MixtureNames usual;
  return {.overlaps = overlaps,
          .gate = gate.value_or(usual.gate),
          .capacity_factor = capacity_factor.value_or(usual.capacity_factor)};
}

bool are_mixtures(const std::vector<std::string>& models, const MixtureOptions& options) {
  const auto mixtures = std::count_if(models.begin(), models.end(), cases::is_mixture);
  if (mixtures == 0 && (!options.overlaps.empty() || options.gate || options.capacity_factor))
    throw ConfigError(fmt::format(
        "{} is for models with mixtures of experts, and {} is none: leave it out, or take one that `dear "
        "models` lists with its experts",
        !options.overlaps.empty() ? "--overlap"
        : options.gate            ? "--gate"
                                  : "--capacity-factor",
        models.front()));
  if (mixtures != 0 && mixtures != static_cast<std::ptrdiff_t>(models.size()))
    throw ConfigError(
        fmt::format("--model {} has no mixtures of experts, whose iterations have other parts: take it by "
                    "itself",
                    *std::find_if_not(models.begin(), models.end(), cases::is_mixture)));
  return mixtures != 0;
}

void refuse_beside_mixtures(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options()) {
    static constexpr const char* kTaken[] = {"model", "cluster", "ranks",   "device",  "batch",
                                             "size",  "dtype",   "overlap", "gate",    "capacity-factor",
                                             "json",  "plot",    "trace",   "progress"};
    const auto& names = option->get_lnames();
    const auto taken = [&](const char* one) {
      return std::find(names.begin(), names.end(), one) != names.end();
    };
    if (option->count() > 0 && std::none_of(std::begin(kTaken), std::end(kTaken), taken))
      throw ConfigError(
          fmt::format("{} does not go with mixtures of experts: leave it out", option->get_name()));
  }
}

void print_scenarios(const std::vector<cases::MixtureScenario>& scenarios) {
  std::vector<std::string> lines;
  for (const cases::MixtureScenario& scenario : scenarios) lines.push_back(cases::describe(scenario));
  print_jobs(lines);
}

std::string table_of(const std::vector<cases::MixtureCase>& cases) {
  std::vector<std::string> header{"model", "cluster", "overlap", "ranks"};
  header.insert(header.end(), kTimes.begin(), kTimes.end());
  Table table(std::move(header), {.left_columns = 3});
  for (const cases::MixtureCase& one : cases) {
    std::vector<std::string> row{std::string(one.scenario->model.name), one.scenario->cluster.name,
                                 std::string(one.overlap->name),
                                 std::to_string(one.scenario->cluster.ranks())};
    for (std::string& cell : times_of(one)) row.push_back(std::move(cell));
    table.add(std::move(row));
  }
  return table.to_string();
}

std::string table_of(const cases::MixtureAnswer& answer) {
  std::vector<std::string> header{"overlap", "here"};
  header.insert(header.end(), kTimes.begin(), kTimes.end());
  header.emplace_back("free from");
  Table table(std::move(header), {.left_columns = 2});
  for (const cases::MixtureAnswer::Row& row : answer.rows) {
    std::vector<std::string> cells{std::string(row.one.overlap->name), row.trains() ? "trains" : "simulated"};
    for (std::string& cell : times_of(row.one)) cells.push_back(std::move(cell));
    cells.push_back(row.free.factor == 0 ? "anywhere"
                    : std::isinf(row.free.factor)
                        ? "nowhere"
                        : sim::format_bandwidth(row.free.factor * answer.here_bits_per_second));
    table.add(std::move(cells));
  }
  return table.to_string();
}

}  // namespace dear::cli
