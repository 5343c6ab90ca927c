#include "dear/tools/cases/mixture_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/plan/breakdown.h"
#include "dear/predict/plan/plan.h"
#include "dear/predict/sim/simulate.h"

namespace dear::cases {
namespace {

using methods::moe::Passes;
using methods::moe::Times;

constexpr double kFarthest = 1e6;
constexpr double kPrecision = 0.01;  // of the bandwidth

// The job with so many times the bandwidth, made once for all overlaps.
class Bandwidths {
 public:
  explicit Bandwidths(const MixtureScenario& scenario) : scenario_(scenario) {}

  // The part of an iteration that waits for all-to-alls.
  double exposed_part(const Passes& overlap, double bandwidth) {
    const auto [found, is_new] = jobs_.try_emplace(bandwidth);
    if (is_new)
      found->second =
          methods::moe::make_job(scenario_.model, *scenario_.device,
                                 plan::scaled(scenario_.cluster, 1, 1 / bandwidth), scenario_.options);
    const Times times = passed_by(*found->second, overlap).times;
    return times.exposed_all_to_all_seconds / times.iteration_seconds;
  }

 private:
  const MixtureScenario& scenario_;
  std::map<double, std::optional<methods::moe::MixtureJob>> jobs_;
};

FreeFrom free_from(Bandwidths& bandwidths, const Passes& overlap) {
  const double at_best = bandwidths.exposed_part(overlap, kFarthest);
  if (at_best > kFreePart)
    return {.factor = std::numeric_limits<double>::infinity(), .exposed_at_best = at_best};
  double slow = 1 / kFarthest, fast = kFarthest;
  if (bandwidths.exposed_part(overlap, slow) <= kFreePart) return {.factor = 0, .exposed_at_best = at_best};
  while (fast > slow * (1 + kPrecision)) {
    const double middle = std::sqrt(slow * fast);
    (bandwidths.exposed_part(overlap, middle) <= kFreePart ? fast : slow) = middle;
  }
  return {.factor = fast, .exposed_at_best = at_best};
}

const MixtureAnswer::Row& row_of(const MixtureAnswer& answer, std::string_view overlap) {
  return *std::find_if(answer.rows.begin(), answer.rows.end(),
                       [&](const auto& row) { return row.one.overlap->name == overlap; });
}

std::string what_is_fastest(const MixtureAnswer& answer) {
  const MixtureAnswer::Row& best = answer.rows.front();
  const double without = row_of(answer, "unoptimised").one.seconds();
  if (best.saved_seconds <= plan::kSame * without)
    return fmt::format("No way to overlap saves more than {:.1f} % of an iteration of {}.", 100 * plan::kSame,
                       format_seconds(without));
  std::string text = fmt::format(
      "The fastest is {}: {} an iteration, {:.2f} times as fast as with all-to-alls under experts alone.",
      best.one.overlap->name, format_seconds(best.one.seconds()), best.one.speed_up());
  if (best.trains()) return text;
  const auto trains =
      std::find_if(answer.rows.begin(), answer.rows.end(), [](const auto& row) { return row.trains(); });
  return text + fmt::format(" It is simulated here; of what dear.MoE does, {} is the fastest: {}.",
                            trains->one.overlap->name, format_seconds(trains->one.seconds()));
}

std::string what_each_gains(const MixtureAnswer& answer) {
  std::vector<std::string> gains;
  for (const auto& [overlap, what] :
       {std::pair("experts", "all-to-alls under experts alone"),
        std::pair("dw", "under weight gradients alone"),
        std::pair("partition", "under parts of the forward alone"), std::pair("lancet", "under both")}) {
    const double saved = row_of(answer, overlap).saved_seconds;
    gains.push_back(fmt::format("{} ({}) {} {}", what, overlap, saved < 0 ? "lose" : "save",
                                format_seconds(std::abs(saved))));
  }
  return fmt::format("Of an iteration without overlap, {}, {}.",
                     format_seconds(row_of(answer, "unoptimised").one.seconds()), fmt::join(gains, ", "));
}

// Ranges that follow each other in as many parts are told together.
std::string where_it_cuts(const MixtureAnswer& answer) {
  const std::vector<CutNames> cuts = cuts_of(row_of(answer, "lancet").one);
  if (cuts.empty()) return "lancet cuts nothing of the forward: in parts it would take longer.";
  std::vector<std::string> told;
  for (std::size_t i = 0; i < cuts.size();) {
    std::size_t end = i;
    while (end < cuts.size() && cuts[end].parts == cuts[i].parts) ++end;
    told.push_back(fmt::format("{} in {} parts, from {} to {}", counted(end - i, "range"), cuts[i].parts,
                               cuts[i].first, cuts[end - 1].last));
    i = end;
  }
  return fmt::format("lancet cuts the forward: {}.", fmt::join(told, "; "));
}

std::string free_text(const MixtureAnswer& answer, std::string_view overlap) {
  const FreeFrom& free = row_of(answer, overlap).free;
  if (free.factor == 0) return "at any bandwidth";
  if (std::isinf(free.factor))
    return fmt::format("at no bandwidth (start-up of messages alone exposes {:.1f} %)",
                       100 * free.exposed_at_best);
  return fmt::format("from {} on", sim::format_bandwidth(free.factor * answer.here_bits_per_second));
}

std::string when_free(const MixtureAnswer& answer) {
  return fmt::format(
      "At most {:.0f} % of an iteration waits for all-to-alls with lancet {}, with experts {}; the outermost "
      "links have {}, and all links are scaled alike.",
      100 * kFreePart, free_text(answer, "lancet"), free_text(answer, "experts"),
      sim::format_bandwidth(answer.here_bits_per_second));
}

nlohmann::ordered_json json_of(const MixtureAnswer::Row& row, double here_bits_per_second) {
  nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(to_json(std::vector<MixtureCase>{row.one})).front();
  json["trains"] = row.trains();
  json["saved_seconds"] = row.saved_seconds;
  const double bits_per_second = row.free.factor == 0 ? 0 : row.free.factor * here_bits_per_second;
  json["free_from_bits_per_second"] = nullptr;
  if (std::isfinite(bits_per_second)) json["free_from_bits_per_second"] = bits_per_second;
  json["exposed_at_any_bandwidth"] = row.free.exposed_at_best;
  return json;
}

}  // namespace

MixtureAnswer plan_mixture(const MixtureScenario& scenario, const MixtureProgress& progress) {
  MixtureAnswer answer{.scenario = &scenario,
                       .rows = {},
                       .here_bits_per_second = plan::outermost_bits_per_second(scenario.cluster),
                       .verdict = {}};
  const std::vector<MixtureCase> cases = simulate(scenario, find_overlaps({}));
  Bandwidths bandwidths(scenario);
  for (const MixtureCase& one : cases) {
    if (progress) progress(answer.rows.size(), cases.size(), one.overlap->name);
    answer.rows.push_back({.one = one,
                           .free = free_from(bandwidths, *one.overlap),
                           .saved_seconds = cases.front().seconds() - one.seconds()});
  }
  std::stable_sort(answer.rows.begin(), answer.rows.end(),
                   [](const auto& a, const auto& b) { return a.one.seconds() < b.one.seconds(); });
  if (scenario.cluster.ranks() == 1) {
    answer.verdict = {"On one rank no token travels: there is nothing to overlap."};
    return answer;
  }
  answer.verdict = {what_is_fastest(answer), what_each_gains(answer), where_it_cuts(answer),
                    when_free(answer)};
  return answer;
}

std::string to_json(const std::vector<MixtureAnswer>& answers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MixtureAnswer& answer : answers) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const MixtureAnswer::Row& row : answer.rows)
      rows.push_back(json_of(row, answer.here_bits_per_second));
    list.push_back({{"model", answer.scenario->model.name},
                    {"cluster", answer.scenario->cluster.name},
                    {"ranks", answer.scenario->cluster.ranks()},
                    {"free_part", kFreePart},
                    {"bits_per_second", nullptr},
                    {"rows", std::move(rows)},
                    {"verdict", answer.verdict}});
    if (std::isfinite(answer.here_bits_per_second))
      list.back()["bits_per_second"] = answer.here_bits_per_second;
  }
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<MixtureAnswer>& answers) {
  std::vector<MixtureCase> cases;
  for (const MixtureAnswer& answer : answers)
    for (const MixtureAnswer::Row& row : answer.rows) cases.push_back(row.one);
  return plot(cases, "Iteration times with mixtures of experts, modelled");
}

}  // namespace dear::cases
