#include "studies/lancet/lancet.h"

#include "studies/lancet/report.h"
#include <algorithm>

#include <fmt/format.h>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/charts/line_plot.h"
#include "dear/base/vocabulary/units.h"

namespace dear::studies::lancet {

using charts::Curve;
using charts::line_plot;
using charts::PlotPanel;
using studies::StudyFile;
namespace {

std::string gain_text(double gain) { return fmt::format("{:.2f}", gain); }

std::string gains_plot(const LancetOptions& options, const LancetFindings& findings) {
  std::vector<PlotPanel> panels;
  for (const std::string& cluster : options.iterations.clusters) {
    PlotPanel panel{.title = cluster, .curves = {}};
    for (const std::string& model : options.iterations.models)
      for (const Gate gate : options.iterations.gates) {
        Curve curve{.name = model + ", " + name_of(gate), .points = {}, .dashed = gate != Gate::in_order};
        for (const Iteration& one : findings.iterations)
          if (one.cluster == cluster && one.model == model && one.gate == gate &&
              one.assumption == assumptions().front().name)
            curve.points.emplace_back(one.ranks, one.gain());
        panel.curves.push_back(std::move(curve));
      }
    panels.push_back(std::move(panel));
  }
  return line_plot(panels, {.title = "How many times as fast iterations are with both passes",
                            .across = "ranks",
                            .upwards = "best baseline's time / lancet's time",
                            .format_x = [](double x) { return fmt::format("{:g}", x); },
                            .format_y = gain_text});
}

std::string paces_plot(const LancetOptions& options, const LancetFindings& findings) {
  PlotPanel gain{.title = "gain of both passes", .curves = {}};
  for (const std::string& cluster : options.iterations.clusters)
    for (const std::string& model : options.iterations.models) {
      Curve curve{.name = model + " on " + cluster, .points = {}};
      for (const Iteration& one : findings.by_pace)
        if (one.cluster == cluster && one.model == model)
          curve.points.emplace_back(one.all_to_all_seconds / one.expert_seconds, one.gain());
      std::sort(curve.points.begin(), curve.points.end());
      gain.curves.push_back(std::move(curve));
    }
  return line_plot({gain}, {.title = "Gains where kernels are faster and slower",
                            .across = "an all-to-all / the experts of a mixture, forward",
                            .upwards = "best baseline's time / lancet's time",
                            .format_x = [](double x) { return fmt::format("{:g}", x); },
                            .format_y = [](double y) { return fmt::format("{:.3f}", y); }});
}

std::string passes_chart(const PublishedLancet& published, const LancetFindings& findings) {
  std::vector<charts::BarPanel> panels;
  for (const Iteration& one : findings.iterations) {
    if (!one.has("partition") || one.ranks != published.ablation_ranks ||
        one.assumption != assumptions().front().name)
      continue;
    charts::BarPanel panel{.title = one.model + " on " + one.cluster, .bars = {}};
    for (const PassTime& pass : one.passes)
      panel.bars.push_back({.label = pass.passes,
                            .first = pass.seconds - pass.exposed_seconds,
                            .second = pass.exposed_seconds});
    panels.push_back(std::move(panel));
  }
  return charts::bar_chart(
      panels, {.title = fmt::format("An iteration on {} ranks, by passes", published.ablation_ranks),
               .first = "computing",
               .second = "communication exposed",
               .mark = "",
               .format = format_seconds});
}

}  // namespace

LancetOptions whole_study() { return {}; }

LancetOptions quick_study() {
  return {.iterations = {.models = {"gpt2-s-moe"},
                         .clusters = {"p3dn-64"},
                         .ranks = {16, 32},
                         .assumptions = 2,
                         .paces = {1, 4}},
          .best_fit = {.graphs = 20}};
}

LancetFindings find(const LancetOptions& options, const studies::Progress& progress) {
  LancetFindings findings{.iterations = iterations_of(options.iterations, progress),
                          .by_pace = iterations_by_pace(options.iterations, progress),
                          .best_fit = {}};
  studies::Pieces last(progress, "optimum", 1);
  findings.best_fit = beside_the_optimum(options.best_fit);
  last.done_one();
  return findings;
}

std::vector<StudyFile> pictures_of(const PublishedLancet& published, const LancetOptions& options,
                                   const LancetFindings& findings) {
  return {{"gains.svg", gains_plot(options, findings)},
          {"passes.svg", passes_chart(published, findings)},
          {"paces.svg", paces_plot(options, findings)}};
}

std::vector<StudyFile> study_of_lancet(const PublishedLancet& published, const LancetOptions& options,
                                       const studies::Progress& progress) {
  const LancetFindings findings = find(options, progress);
  std::vector<StudyFile> files{{"README.md", report_of(published, options, findings)},
                               {"results.json", to_json(findings)}};
  for (StudyFile& picture : pictures_of(published, options, findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::lancet
