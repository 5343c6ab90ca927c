#include "studies/themis/themis.h"

#include "studies/themis/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/line_plot.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/collective.h"

namespace dear::studies::themis {

using charts::Curve;
using charts::line_plot;
using charts::PlotPanel;
using studies::StudyFile;
namespace {

std::vector<std::int64_t> powers(std::int64_t first, std::int64_t last, std::int64_t factor) {
  std::vector<std::int64_t> all;
  for (std::int64_t bytes = first; bytes <= last; bytes *= factor) all.push_back(bytes);
  return all;
}

std::string iterations_plot(const ThemisOptions& options, const ThemisFindings& findings) {
  std::vector<PlotPanel> panels;
  for (const std::string& policy : options.iterations.policies) {
    PlotPanel panel{.title = policy == "serial" ? "without overlap" : fmt::format("under {}", policy),
                    .curves = {}};
    for (const std::string& model : options.iterations.models) {
      Curve curve{.name = model, .points = {}};
      for (const IterationGain& gain : findings.iterations) {
        if (gain.model == model && gain.policy == policy && gain.algorithm == "themis" && gain.ratio > 0)
          curve.points.emplace_back(gain.ratio, gain.gain);
      }
      panel.curves.push_back(std::move(curve));
    }
    panels.push_back(std::move(panel));
  }
  return line_plot(panels, {.title = "How many times as fast iterations get with themis",
                            .across = "communication of the baseline / computation",
                            .upwards = "baseline's time / themis's time",
                            .format_x = [](double x) { return fmt::format("{:g}", x); },
                            .format_y = [](double y) { return fmt::format("{:.2f}", y); }});
}

std::string sizes_plot(const ThemisFindings& findings) {
  PlotPanel panel{.title = "six networks, geometric mean", .curves = {}};
  for (const SizeOutcome& outcome : findings.sizes) {
    if (outcome.algorithm == "round-robin" || outcome.algorithm == "baseline") continue;
    if (panel.curves.empty() || panel.curves.back().name != outcome.algorithm)
      panel.curves.push_back({.name = outcome.algorithm, .points = {}});
    panel.curves.back().points.emplace_back(static_cast<double>(outcome.bytes), outcome.gain);
  }
  return line_plot({panel}, {.title = "How many times as fast as the best baseline, by size",
                             .across = "size of the vector",
                             .upwards = "best baseline's time / algorithm's time",
                             .format_x = [](double x) { return fmt::format("{:g} MB", x / 1e6); },
                             .format_y = [](double y) { return fmt::format("{:.2f}", y); }});
}

}  // namespace

ThemisOptions whole_study() {
  return {.sizes = {.bytes = powers(64 * kKiB, kGiB, 4)}, .preset_sizes = {25 * kMiB, kGiB}};
}

ThemisOptions quick_study() {
  return {.iterations = {.models = {"resnet152", "dlrm"}, .ratios = {0.5, 1, 2, 4, 8, 16}},
          .random = {.networks = 100},
          .optimum = {.networks = 5, .chunks = {2}},
          .sizes = {.bytes = {64 * kKiB, 256 * kMiB}},
          .preset_sizes = {25 * kMiB}};
}

ThemisFindings find(const ThemisOptions& options, const studies::Progress& progress) {
  const std::vector<Cluster> networks = evaluated_networks();
  studies::Pieces sections(progress, "sections", 6);
  const auto told = [&](auto found) {
    sections.done_one();
    return found;
  };
  return {.uses = told(uses_of(networks, options.utilisation)),
          .iterations = told(iteration_gains(networks, options.iterations)),
          .random = told(on_random_networks(options.random)),
          .optimum = told(beside_the_optimum(options.optimum)),
          .sizes = told(by_size(networks, options.sizes)),
          .presets = told(on_presets(options.preset_sizes))};
}

std::vector<StudyFile> pictures_of(const ThemisOptions& options, const ThemisFindings& findings) {
  std::vector<sim::CollectiveRun> runs;
  const Cluster network = evaluated_networks().back();
  const sim::CollectiveOptions collective{.bytes = options.utilisation.bytes,
                                          .chunks = options.utilisation.chunks};
  for (const char* const algorithm : {"baseline", "themis-fifo", "themis-scf", "themis"})
    runs.push_back(sim::run_collective(network, collective, algorithm));
  return {{"use.svg", sim::utilisation_plot(network, collective, runs)},
          {"iterations.svg", iterations_plot(options, findings)},
          {"sizes.svg", sizes_plot(findings)}};
}

std::string to_json(const ThemisOptions& options, const ThemisFindings& findings) {
  nlohmann::ordered_json all{{"bytes", options.utilisation.bytes}, {"chunks", options.utilisation.chunks}};
  for (const Use& use : findings.uses)
    all["utilisation"].push_back({{"cluster", use.cluster},
                                  {"algorithm", use.algorithm},
                                  {"seconds", use.seconds},
                                  {"utilisation", use.utilisation},
                                  {"gain", use.gain},
                                  {"by_dimension", use.by_dimension}});
  for (const IterationGain& gain : findings.iterations)
    all["iterations"].push_back({{"model", gain.model},
                                 {"policy", gain.policy},
                                 {"algorithm", gain.algorithm},
                                 {"communication_to_computation", gain.ratio},
                                 {"seconds_of_baseline", gain.seconds_of_baseline},
                                 {"seconds", gain.seconds},
                                 {"gain", gain.gain},
                                 {"largest", gain.largest}});
  for (const RandomOutcome& outcome : findings.random)
    all["random_networks"].push_back({{"algorithm", outcome.algorithm},
                                      {"gain", outcome.gain},
                                      {"worst", outcome.worst},
                                      {"slower", outcome.slower},
                                      {"networks", options.random.networks},
                                      {"utilisation", outcome.utilisation}});
  for (const OptimumOutcome& outcome : findings.optimum)
    all["beside_the_optimum"].push_back({{"algorithm", outcome.algorithm},
                                         {"chunks", outcome.chunks},
                                         {"networks", outcome.networks},
                                         {"mean", outcome.longer},
                                         {"most", outcome.most_longer},
                                         {"optimal", outcome.reached}});
  for (const SizeOutcome& outcome : findings.sizes)
    all["sizes"].push_back(
        {{"algorithm", outcome.algorithm}, {"bytes", outcome.bytes}, {"gain", outcome.gain}});
  for (const PresetOutcome& outcome : findings.presets)
    all["presets"].push_back({{"cluster", outcome.cluster},
                              {"bytes", outcome.bytes},
                              {"seconds_in_one_chunk", outcome.one_chunk_seconds},
                              {"seconds_of_best_baseline", outcome.baseline_seconds},
                              {"seconds", outcome.seconds},
                              {"utilisation", outcome.utilisation},
                              {"plan", outcome.plan},
                              {"chunks", outcome.chunks}});
  return all.dump(2) + "\n";
}

std::vector<StudyFile> study_of_themis(const PublishedThemis& published, const ThemisOptions& options,
                                       const studies::Progress& progress) {
  const ThemisFindings findings = find(options, progress);
  std::vector<StudyFile> files{{"README.md", report_of(published, options, findings)},
                               {"results.json", to_json(options, findings)}};
  for (StudyFile& picture : pictures_of(options, findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::themis
