#include "studies/rounds/report.h"
#include <algorithm>

#include <fmt/format.h>

#include "dear/base/charts/line_plot.h"

namespace dear::studies::rounds {

using charts::Curve;
using charts::line_plot;
using charts::PlotPanel;
namespace {

std::string short_number(double number) { return fmt::format("{:.3g}", number); }
std::string area_text(double number) { return fmt::format("{:.3f}", number); }

std::string curve_of(const MinimumRun& run) {
  std::string name = run.algorithm;
  if (run.owners != run.cohort) name += fmt::format(", {} owners", run.owners);
  if (run.cohort != run.problem.clients) name += fmt::format(", cohort {}", run.cohort);
  return name;
}

PlotPanel errors_in(const MinimaFindings& findings, const char* part, std::int64_t dimension) {
  PlotPanel panel{.title = "", .curves = {}};
  for (const MinimumRun* const one : findings.part(part)) {
    if (one->problem.dimension != dimension) continue;
    panel.title = fmt::format("{} clients, {} dimensions, L / mu = {:g}", one->problem.clients, dimension,
                              one->problem.condition);
    panel.curves.push_back(
        {.name = curve_of(*one), .points = one->by_reals, .dashed = one->owners == one->cohort});
  }
  return panel;
}

std::string reals(const MinimaFindings& findings) {
  std::vector<PlotPanel> panels;
  std::vector<std::int64_t> dimensions;
  for (const MinimumRun* const one : findings.part("large"))
    if (std::find(dimensions.begin(), dimensions.end(), one->problem.dimension) == dimensions.end())
      dimensions.push_back(one->problem.dimension);
  panels.push_back(errors_in(findings, "methods", findings.part("methods").front()->problem.dimension));
  for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension)
    panels.push_back(errors_in(findings, "large", *dimension));
  return line_plot(panels, {.title = "Error against reals sent",
                            .across = "reals that a client has sent",
                            .upwards = "squared distance to the minimum",
                            .logarithmic = true,
                            .format_x = short_number,
                            .format_y = short_number});
}

std::string conditions(const MinimaFindings& findings) {
  PlotPanel by_condition{.title = "by L / mu", .curves = {}, .across = "L / mu"};
  for (const char* const algorithm : {"scaffnew", "compressed-scaffnew"}) {
    Curve curve{.name = algorithm, .points = {}};
    for (const MinimumRun* const one : findings.part("condition"))
      if (one->algorithm == algorithm)
        curve.points.emplace_back(one->problem.condition, fewer_than_descent(findings, *one));
    std::sort(curve.points.begin(), curve.points.end());
    by_condition.curves.push_back(std::move(curve));
  }
  PlotPanel by_cohort{.title = "by participation", .curves = {}, .across = "clients of a round"};
  Curve tamuna{.name = "tamuna", .points = {}};
  for (const MinimumRun* const one : findings.part("cohort"))
    tamuna.points.emplace_back(one->cohort, fewer_than_descent(findings, *one));
  by_cohort.curves.push_back(std::move(tamuna));
  return line_plot({by_condition, by_cohort}, {.title = "How many times fewer reals than gradient descent",
                                               .across = "",
                                               .upwards = "reals of gradient descent / reals",
                                               .logarithmic = true,
                                               .format_x = short_number,
                                               .format_y = short_number});
}

std::string owners(const MinimaFindings& findings) {
  PlotPanel panel{.title = "", .curves = {}};
  for (const double alpha : {0.0, 0.1}) {
    Curve curve{
        .name = alpha == 0 ? "sent up" : "and a tenth of those down", .points = {}, .dashed = alpha > 0};
    for (const MinimumRun* const one : findings.part("owners"))
      if (one->algorithm != "gd") curve.points.emplace_back(one->owners, one->sent(alpha));
    panel.curves.push_back(std::move(curve));
  }
  return line_plot({panel}, {.title = "Reals until an error of 1e-12, by compressed-scaffnew",
                             .across = "owners of a coordinate",
                             .upwards = "reals of a client",
                             .logarithmic = true,
                             .format_x = short_number,
                             .format_y = short_number});
}

std::string areas(const AreasFindings& findings) {
  std::vector<PlotPanel> panels;
  for (const Shards shards : {Shards::alike, Shards::sorted}) {
    PlotPanel panel{.title = shards == Shards::alike ? "dealt at random" : "sorted by a feature",
                    .curves = {}};
    for (const AreaRun& one : findings.runs)
      if (one.shards == shards && !one.exact && (one.every == 1 || one.every >= 32) &&
          (one.every > 1 || one.algorithm == "coda"))
        panel.curves.push_back({.name = one.every == 1
                                            ? one.algorithm + ", every step"
                                            : fmt::format("{}, {} steps a round", one.algorithm, one.every),
                                .points = one.by_rounds,
                                .dashed = one.algorithm == "codasca"});
    panels.push_back(std::move(panel));
  }
  return line_plot(panels, {.title = "AUC against rounds",
                            .across = "rounds",
                            .upwards = "AUC",
                            .format_x = short_number,
                            .format_y = area_text});
}

std::string drift(const AreasFindings& findings) {
  std::vector<PlotPanel> panels;
  for (const Shards shards : {Shards::alike, Shards::sorted}) {
    PlotPanel panel{.title = shards == Shards::alike ? "dealt at random" : "sorted by a feature",
                    .curves = {}};
    for (const char* const algorithm : {"coda", "codasca"}) {
      Curve curve{.name = algorithm, .points = {}};
      for (const AreaRun& one : findings.runs)
        if (one.exact && one.shards == shards && one.algorithm == algorithm)
          curve.points.emplace_back(static_cast<double>(one.every), one.mean_distance());
      panel.curves.push_back(std::move(curve));
    }
    panels.push_back(std::move(panel));
  }
  return line_plot(panels, {.title = "Distance to the optimum with exact gradients",
                            .across = "steps of a round",
                            .upwards = "|w - w*| / |w*|",
                            .logarithmic = true,
                            .format_x = short_number,
                            .format_y = short_number});
}

bool is_plain(const Exchanges& one) { return one.rate == 1 && one.momentum == 0; }
bool is_usual(const Learnt& one, const std::vector<Learnt>& learnt) {
  return !one.lesson.apart && one.lesson.steps == learnt.front().lesson.steps;
}

std::string losses(const std::vector<Learnt>& learnt) {
  PlotPanel panel{.title = "", .curves = {}};
  for (const Learnt& one : learnt) {
    const Exchanges& exchanges = one.lesson.exchanges;
    const bool shown = exchanges.every == 0 ||
                       (exchanges.momentum == 0.5F && exchanges.every <= 400 &&
                        exchanges.carried == Carried::fp32 && exchanges.fragments == 1) ||
                       (exchanges.carried == Carried::four_bits && exchanges.fragments == 1) ||
                       (is_plain(exchanges) && exchanges.every == 32);
    if (!is_usual(one, learnt) || !shown) continue;
    Curve curve{.name = name_of(exchanges), .points = {}, .dashed = exchanges.every == 0};
    for (std::size_t look = 0; look < one.by_seed.front().by_bytes.size(); ++look) {
      double mean = 0;
      for (const Trained& seed : one.by_seed)
        mean += seed.by_bytes[look].second / static_cast<double>(one.by_seed.size());
      const double bytes = one.by_seed.front().by_bytes[look].first;
      if (bytes == 0) continue;
      if (!curve.points.empty() && curve.points.back().first == bytes) curve.points.pop_back();
      curve.points.emplace_back(bytes, mean);
    }
    panel.curves.push_back(std::move(curve));
  }
  return line_plot({panel}, {.title = "Loss against bytes",
                             .across = "bytes that a site has sent",
                             .upwards = "loss of the test (nats a character)",
                             .format_x = short_number,
                             .format_y = short_number});
}

std::string steps(const std::vector<Learnt>& learnt) {
  Curve plain{.name = "local SGD", .points = {}, .dashed = true},
      outer{.name = "outer momentum 0.9", .points = {}}, less{.name = "outer momentum 0.5", .points = {}};
  double least = 0;
  for (const Learnt& one : learnt) {
    const Exchanges& exchanges = one.lesson.exchanges;
    if (!is_usual(one, learnt) || exchanges.carried != Carried::fp32 || exchanges.fragments > 1) continue;
    if (exchanges.every == 0) {
      least = one.mean_loss();
      continue;
    }
    Curve& curve = is_plain(exchanges) ? plain : exchanges.momentum == 0.5F ? less : outer;
    curve.points.emplace_back(exchanges.every, one.mean_loss());
  }
  PlotPanel panel{.title = "", .curves = {plain, outer, less}};
  double most_steps = 1;
  for (Curve& curve : panel.curves) {
    std::sort(curve.points.begin(), curve.points.end());
    if (!curve.points.empty()) most_steps = std::max(most_steps, curve.points.back().first);
  }
  panel.curves.push_back(
      {.name = "every step", .points = {{1, least}, {most_steps, least}}, .dashed = false, .marked = false});
  return line_plot({panel}, {.title = "Loss against steps of a round, at equal samples",
                             .across = "steps of a round",
                             .upwards = "loss of the test (nats a character)",
                             .format_x = short_number,
                             .format_y = short_number});
}

}  // namespace

std::vector<studies::StudyFile> pictures_of(const RoundsFindings& findings) {
  return {{"tamuna/reals.svg", reals(findings.minima)},   {"tamuna/gains.svg", conditions(findings.minima)},
          {"tamuna/owners.svg", owners(findings.minima)}, {"coda/auc.svg", areas(findings.areas)},
          {"coda/drift.svg", drift(findings.areas)},      {"diloco/losses.svg", losses(findings.learnt)},
          {"diloco/steps.svg", steps(findings.learnt)}};
}

}  // namespace dear::studies::rounds
