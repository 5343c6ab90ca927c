#include "dear/tools/rounds_command/rounds_report.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/line_plot.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/table.h"

namespace dear::rounds_command {
namespace {

using methods::rounds::Counts;
using methods::rounds::End;
using methods::rounds::LocalSteps;

double cost_of(const Counts& counts, double alpha) {
  return static_cast<double>(counts.up) + alpha * static_cast<double>(counts.down);
}

// How many times fewer reals than the first, where both came where they were to.
std::optional<double> saved_by(const RoundsReport& report, const RoundsRun& run) {
  const auto arrived = [](const RoundsRun& one) {
    return one.outcome.end == End::reached ||
           (one.outcome.end == End::ended && one.settings.algorithm->goal == methods::rounds::Goal::saddle);
  };
  const RoundsRun& first = report.runs.front();
  if (!arrived(first) || !arrived(run)) return std::nullopt;
  return cost_of(first.outcome.last.counts, report.alpha) / cost_of(run.outcome.last.counts, report.alpha);
}

std::string number(double value) { return fmt::format("{:.3g}", value); }

std::string steps_text(const methods::rounds::Settings& settings) {
  return settings.algorithm->steps == LocalSteps::geometric
             ? fmt::format("mean {:.3g}", 1 / settings.probability)
             : fmt::format("{}", settings.every);
}

}  // namespace

std::string to_text(const RoundsReport& report) {
  std::vector<std::string> header{"algorithm", "cohort",     "owners", "steps a round", "rounds", "given up",
                                  "reals up",  "reals down", "fewer",  "error",         "end",    "time"};
  if (report.best_auc) header.emplace_back("AUC");
  cli::Table table(header, {.left_columns = 1});
  for (const RoundsRun& run : report.runs) {
    const methods::rounds::Milestone& last = run.outcome.last;
    const std::optional<double> saved = saved_by(report, run);
    std::vector<std::string> row{
        std::string(run.settings.algorithm->name),    std::to_string(run.settings.cohort),
        std::to_string(run.settings.owners),          steps_text(run.settings),
        cli::with_separators(last.counts.rounds),     cli::with_separators(last.counts.given_up),
        cli::with_separators(last.counts.up),         cli::with_separators(last.counts.down),
        saved ? fmt::format("{:.1f}x", *saved) : "-", fmt::format("{:.1e}", last.error),
        std::string(name_of(run.outcome.end)),        format_seconds(run.seconds)};
    if (report.best_auc) row.push_back(fmt::format("{:.5f}", run.auc.value_or(NAN)));
    table.add(row);
  }
  std::string text = table.to_string();
  text += fmt::format(
      "\nreals: that a client which takes part has sent and got; fewer: than {}{}\n"
      "error: squared distance to the optimum, beside that of the start\n",
      report.runs.front().settings.algorithm->name,
      report.alpha == 0 ? ", sent up" : fmt::format(", where one sent down counts {:g}", report.alpha));
  if (report.best_auc) text += fmt::format("AUC at the optimum: {:.5f}\n", *report.best_auc);
  return text;
}

std::string to_json(const RoundsReport& report) {
  using Json = nlohmann::ordered_json;
  const auto sums = [](const methods::rounds::Milestone& one) {
    return Json{{"rounds", one.counts.rounds},     {"given_up", one.counts.given_up},
                {"local_steps", one.counts.steps}, {"reals_up", one.counts.up},
                {"reals_down", one.counts.down},   {"error", one.error}};
  };
  Json runs = Json::array();
  for (const RoundsRun& run : report.runs) {
    const methods::rounds::Settings& settings = run.settings;
    Json one{{"algorithm", settings.algorithm->name},
             {"end", name_of(run.outcome.end)},
             {"cohort", settings.cohort},
             {"owners", settings.owners},
             {"gamma", settings.gamma},
             {"steps_a_round", settings.algorithm->steps == LocalSteps::geometric
                                   ? 1 / settings.probability
                                   : static_cast<double>(settings.every)},
             {"chi", settings.chi}};
    one.update(sums(run.outcome.last));
    if (run.auc) one["auc"] = *run.auc;
    one["largest_control_sum"] = run.outcome.control_sum;
    one["bytes_sent_by_rank_0"] = run.outcome.traffic.sent_bytes;
    one["bytes_gathered_by_rank_0"] = run.outcome.traffic.gathered_bytes;
    one["seconds"] = run.seconds;
    Json milestones = Json::array();
    for (const methods::rounds::Milestone& milestone : run.outcome.milestones)
      milestones.push_back(sums(milestone));
    one["milestones"] = milestones;
    runs.push_back(one);
  }
  Json json{{"problem", report.problem},     {"clients", report.clients},
            {"dimension", report.dimension}, {"seed", report.seed},
            {"alpha", report.alpha},         {"ranks", report.ranks},
            {"group", report.description},   {"network", report.modelled_network}};
  if (report.best_auc) json["auc_at_optimum"] = *report.best_auc;
  json["runs"] = runs;
  return json.dump(2) + "\n";
}

std::string plot_of(const RoundsReport& report) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  for (const RoundsRun& run : report.runs) {
    charts::Curve curve{.name = std::string(run.settings.algorithm->name), .points = {}};
    for (const methods::rounds::Milestone& one : run.outcome.milestones)
      if (one.counts.rounds > 0 && std::isfinite(one.error))
        curve.points.emplace_back(cost_of(one.counts, report.alpha), one.error);
    panel.curves.push_back(std::move(curve));
  }
  return charts::line_plot({panel}, {.title = report.problem,
                                     .across = "reals that a client has sent",
                                     .upwards = "squared distance to the optimum",
                                     .logarithmic = true,
                                     .format_x = number,
                                     .format_y = number});
}

}  // namespace dear::rounds_command
