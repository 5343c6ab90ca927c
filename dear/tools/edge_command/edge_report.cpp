#include "dear/tools/edge_command/edge_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/line_plot.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/table.h"

namespace dear::edge_command {
namespace {

using methods::edge::EdgeRound;
using methods::edge::Way;

bool chooses(const EdgeRun& run) {
  const Way way = methods::edge::find_aggregator(run.settings.aggregator).way;
  return way != Way::hierarchical && way != Way::gossip;
}

double best_accuracy(const EdgeRun& run) {
  double best = 0;
  for (const EdgeRound& round : run.rounds) best = std::max(best, round.accuracy);
  return best;
}

std::optional<double> seconds_to(const EdgeRun& run, double accuracy) {
  for (const EdgeRound& round : run.rounds)
    if (round.accuracy >= accuracy) return round.seconds;
  return std::nullopt;
}

// The accuracy that the worst run reached, rounded down to whole percents.
double common_accuracy(const EdgeReport& report) {
  double least = 1;
  for (const EdgeRun& run : report.runs) least = std::min(least, best_accuracy(run));
  return std::floor(100 * least) / 100;
}

}  // namespace

std::string name_of(const EdgeReport& report, const EdgeRun& run) {
  const auto differ = [&](auto member) {
    return std::any_of(report.runs.begin(), report.runs.end(),
                       [&](const EdgeRun& other) { return other.settings.*member != run.settings.*member; });
  };
  std::string name(chooses(run) ? run.settings.scheduler : run.settings.aggregator);
  if (chooses(run) && differ(&methods::edge::EdgeSettings::aggregator))
    name = differ(&methods::edge::EdgeSettings::scheduler)
               ? fmt::format("{}, {}", name, run.settings.aggregator)
               : std::string(run.settings.aggregator);
  return name;
}

std::string to_text(const EdgeReport& report) {
  const double common = common_accuracy(report);
  cli::Table table({"scheduler", "aggregator", "rounds", "virtual time", "a round", "devices", "mean age",
                    "sent up", "energy", "loss", "accuracy", fmt::format("to {:.0f} %", 100 * common)},
                   {.left_columns = 2});
  for (const EdgeRun& run : report.runs) {
    const EdgeRound& last = run.rounds.back();
    double participants = 0;
    for (const EdgeRound& round : run.rounds) participants += static_cast<double>(round.participants.size());
    const auto rounds = static_cast<double>(std::max<std::int64_t>(last.number, 1));
    const bool analogue = last.channel_uses > 0;
    table.add({std::string(chooses(run) ? run.settings.scheduler : "-"), std::string(run.settings.aggregator),
               cli::with_separators(last.number), format_seconds(last.seconds),
               format_seconds(last.seconds / rounds), fmt::format("{:.1f}", participants / rounds),
               fmt::format("{:.2f}", last.mean_age),
               analogue ? fmt::format("{:.3g} Msymbols", last.channel_uses / 1e6)
                        : fmt::format("{:.3g} Mbit", last.bits_up / 1e6),
               fmt::format("{:.3g} J", last.joules), fmt::format("{:.4f}", last.loss),
               fmt::format("{:.3f}", last.accuracy), format_seconds(seconds_to(run, common).value_or(0))});
  }
  return table.to_string() +
         "\nvirtual time: computing and the radio are modelled, the learning is done; accuracy: on samples "
         "that no device "
         "has\n";
}

std::string to_json(const EdgeReport& report) {
  using Json = nlohmann::ordered_json;
  Json runs = Json::array();
  for (const EdgeRun& run : report.runs) {
    Json rounds = Json::array();
    for (const EdgeRound& round : run.rounds)
      rounds.push_back({{"round", round.number},
                        {"seconds", round.seconds},
                        {"participants", round.participants},
                        {"bits_up", round.bits_up},
                        {"channel_uses", round.channel_uses},
                        {"joules", round.joules},
                        {"mean_age", round.mean_age},
                        {"loss", round.loss},
                        {"accuracy", round.accuracy}});
    Json one{{"aggregator", run.settings.aggregator}};
    if (chooses(run)) one["scheduler"] = run.settings.scheduler;
    one["rounds"] = rounds;
    runs.push_back(one);
  }
  return Json{{"problem", report.problem}, {"seed", report.seed}, {"runs", runs}}.dump(2) + "\n";
}

std::string to_csv(const EdgeReport& report) {
  std::string text = methods::edge::trace_header();
  for (const EdgeRun& run : report.runs) {
    std::string name = name_of(report, run);
    std::replace(name.begin(), name.end(), ',', ';');
    text += trace_lines(name, run.rounds);
  }
  return text;
}

std::string plot_of(const EdgeReport& report) {
  charts::PlotPanel accuracy{.title = "accuracy on other samples", .curves = {}},
      loss{.title = "loss, of its start", .curves = {}};
  for (const EdgeRun& run : report.runs) {
    charts::Curve one{.name = name_of(report, run), .points = {}}, other = one;
    for (const EdgeRound& round : run.rounds) {
      one.points.emplace_back(round.seconds, round.accuracy);
      other.points.emplace_back(round.seconds, round.loss / run.rounds.front().loss);
    }
    accuracy.curves.push_back(std::move(one));
    loss.curves.push_back(std::move(other));
  }
  const auto number = [](double value) { return fmt::format("{:.3g}", value); };
  return charts::line_plot({accuracy, loss}, {.title = report.problem,
                                              .across = "virtual time in seconds",
                                              .upwards = "",
                                              .logarithmic_x = false,
                                              .format_x = number,
                                              .format_y = number});
}

}  // namespace dear::edge_command
