#include "dear/tools/edge_command/plan_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/table.h"

namespace dear::edge_command {
namespace {

using methods::edge::Bandwidth;
using methods::edge::PabaPlan;
using methods::edge::PabaProblem;

// How far a plan may be from the best of its freedom.
double gap(const PabaPlan& plan) { return plan.seconds / plan.bound_seconds - 1; }

std::string groups_table(const PabaProblem& problem, const PabaPlan& plan) {
  constexpr std::size_t kMostRows = 24;
  cli::Table table({"group", "parameters", "down", "up", "computes", "its slowest worker ends"},
                   {.left_columns = 1});
  for (std::size_t group = 0; group < std::min(plan.whole.size(), kMostRows); ++group) {
    double down = 0, up = 0, computes = 0, ends = 0;
    const auto block = static_cast<double>(plan.whole[group]);
    for (std::size_t worker = 0; worker < problem.groups[group].size(); ++worker) {
      const methods::edge::Worker& one = problem.groups[group][worker];
      const Bandwidth& band = plan.bandwidth[group][worker];
      down += band.down_hz;
      up += band.up_hz;
      computes = std::max(computes, block * one.cycles_per_parameter / one.frequency_hz);
      ends = std::max(ends, seconds_of(one, problem, block, band));
    }
    table.add({std::to_string(group), cli::with_separators(plan.whole[group]),
               fmt::format("{:.1f} kHz", down / 1e3), fmt::format("{:.1f} kHz", up / 1e3),
               format_seconds(computes), format_seconds(ends)});
  }
  std::string text = table.to_string();
  if (plan.whole.size() > kMostRows)
    text += fmt::format("and {} more groups\n", plan.whole.size() - kMostRows);
  const auto idle = std::count(plan.whole.begin(), plan.whole.end(), 0);
  if (idle > 0)
    text += fmt::format("groups without parameters: {}; others make better use of their bandwidth\n", idle);
  return text;
}

}  // namespace

std::string to_text(const PlanReport& report) {
  cli::Table table({"scheme", "iteration", "less", "in whole parameters", "no plan is below", "KKT residual"},
                   {.left_columns = 1});
  for (const PabaPlan& plan : report.plans)
    table.add({std::string(plan.scheme), format_seconds(plan.seconds),
               fmt::format("{:.1f} %", 100 * (1 - plan.seconds / report.plans.front().seconds)),
               format_seconds(plan.whole_seconds),
               plan.bound_seconds > 0 ? format_seconds(plan.bound_seconds) : "-",
               plan.residual > 0 ? fmt::format("{:.0e}", plan.residual) : "-"});
  const PabaPlan& last = report.plans.back();
  std::string text = fmt::format("{}\nThe plan {}:\n\n{}", table.to_string(), last.scheme,
                                 groups_table(report.groups, last));
  if (last.bound_seconds > 0)
    text += fmt::format("\nProof: no plan with the freedom of {} is more than {:.1e} faster.\n", last.scheme,
                        std::max(gap(last), 1e-15));
  return text;
}

std::string to_json(const PlanReport& report) {
  using Json = nlohmann::ordered_json;
  Json plans = Json::array();
  for (const PabaPlan& plan : report.plans) {
    Json bandwidth = Json::array();
    for (const std::vector<Bandwidth>& group : plan.bandwidth) {
      Json& workers = bandwidth.emplace_back(Json::array());
      for (const Bandwidth& one : group) workers.push_back({{"down_hz", one.down_hz}, {"up_hz", one.up_hz}});
    }
    Json one{{"scheme", plan.scheme},
             {"iteration_seconds", plan.seconds},
             {"whole_iteration_seconds", plan.whole_seconds}};
    if (plan.bound_seconds > 0) {
      one["bound_seconds"] = plan.bound_seconds;
      one["gap"] = gap(plan);
    }
    if (plan.evaluations > 0) {
      one["kkt_residual"] = plan.residual;
      one["evaluations"] = plan.evaluations;
    }
    one["blocks"] = plan.whole;
    one["real_blocks"] = plan.blocks;
    one["bandwidth"] = bandwidth;
    plans.push_back(one);
  }
  return Json{{"problem", report.problem},
              {"parameters", report.groups.parameters},
              {"bits_per_parameter", report.groups.bits_per_parameter},
              {"bandwidth_down_hz", report.groups.bandwidth_down_hz},
              {"bandwidth_up_hz", report.groups.bandwidth_up_hz},
              {"plans", plans}}
             .dump(2) +
         "\n";
}

}  // namespace dear::edge_command
