#include "studies/fusionllm/report.h"
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/charts/line_plot.h"

namespace dear::studies::fusionllm {

using charts::Curve;
using charts::line_plot;
using charts::PlotPanel;
namespace {

std::string plain(double number) { return fmt::format("{:g}", number); }

// Returns how many times as fast a plan is as equal numbers without compression, where both could be made.
double gain_of(const Iterations& iterations, const std::string& setting, const std::string& model,
               const Rival& plan) {
  std::vector<double> gains;
  for (const Iteration& one : iterations.all) {
    if (one.setting != setting || one.model != model || one.method != plan.method || one.rule != plan.rule)
      continue;
    const Iteration* const number =
        iterations.find(setting, model, one.seed, PlanMethod::equal_number, CompressionRule::none);
    if (number != nullptr) gains.push_back(number->seconds / one.seconds);
  }
  return geometric_mean(gains);
}

std::string bandwidths(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::map<double, std::string> settings;
  for (const Iteration& one : findings.by_bandwidth.all)
    settings[one.between_bits_per_second / 1e6] = one.setting;
  std::vector<PlotPanel> panels;
  for (const std::string& model : published.models) {
    PlotPanel panel{.title = model, .curves = {}};
    for (const Asked& asked : pictured_plans()) {
      const Rival plan{asked.method, asked.rule};
      if (plan.method == PlanMethod::equal_number && plan.rule == CompressionRule::none) continue;
      Curve curve{.name = plan.name(), .points = {}, .dashed = plan.method != PlanMethod::op_fence};
      for (const auto& [megabits, setting] : settings)
        curve.points.emplace_back(megabits, gain_of(findings.by_bandwidth, setting, model, plan));
      panel.curves.push_back(std::move(curve));
    }
    panels.push_back(std::move(panel));
  }
  return line_plot(panels, {.title = "How many times as fast as equal numbers without compression",
                            .across = "bandwidth between sites (Mb/s); inside of them 10 Gb/s",
                            .upwards = "time of equal numbers / time",
                            .logarithmic = true,
                            .format_x = plain,
                            .format_y = figure_text});
}

std::string topologies_chart(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::vector<charts::BarPanel> panels;
  for (const std::string& model : published.models) {
    charts::BarPanel panel{.title = model, .bars = {}};
    for (const Setting& one : topologies()) {
      const double gain = over_the_best(findings.by_topology, one.name, model);
      if (gain > 0) panel.bars.push_back({.label = one.name, .first = gain});
    }
    panels.push_back(std::move(panel));
  }
  return charts::bar_chart(
      panels, {.title = "OP-Fence with AdaTopK beside the fastest of the equal cuts, by topology",
               .first = "time of the fastest equal cut / time",
               .second = "",
               .mark = "",
               .format = figure_text});
}

std::string schedules_chart(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::vector<charts::BarPanel> panels;
  for (const Setting* const setting : {&assumptions().front(), &topologies().front()})
    for (const std::string& model : published.models) {
      std::map<ScheduleKind, std::vector<const Iteration*>> by_schedule;
      std::map<std::uint64_t, double> usual;
      for (const Iteration& one : findings.by_schedule.all) {
        if (one.setting != setting->name || one.model != model) continue;
        by_schedule[one.schedule].push_back(&one);
        if (one.schedule == ScheduleKind::one_f_one_b) usual[one.seed] = one.seconds;
      }
      charts::BarPanel panel{.title = fmt::format("{}, {}", model, setting->name), .bars = {}};
      for (const auto& [schedule, seeds] : by_schedule) {
        charts::Bar bar{.label = std::string(name_of(schedule))};
        for (const Iteration* const one : seeds) {
          const auto found = usual.find(one->seed);
          if (found == usual.end()) continue;
          const double part = one->seconds / found->second / static_cast<double>(seeds.size());
          bar.first += part * (1 - one->bubble);
          bar.second += part * one->bubble;
        }
        panel.bars.push_back(std::move(bar));
      }
      if (!panel.bars.empty()) panels.push_back(std::move(panel));
    }
  return charts::bar_chart(panels, {.title = "An iteration of OP-Fence with AdaTopK, over that by 1F1B",
                                    .first = "a device computes, on average",
                                    .second = "it waits",
                                    .mark = "",
                                    .format = figure_text});
}

std::string losses(const FusionLlmFindings& findings) {
  const LearntWith* const dense = find(findings.learnt, CompressionRule::none, 1);
  std::vector<PlotPanel> panels{
      {.title = "by ratio", .curves = {}, .across = "ratio"},
      {.title = "by load", .curves = {}, .across = "load of the slowest link, of dense"}};
  for (const CompressionRule rule : {CompressionRule::top_k, CompressionRule::ada_top_k})
    for (std::size_t panel = 0; panel < panels.size(); ++panel) {
      Curve curve{.name = std::string(name_of(rule)), .points = {}, .dashed = rule == CompressionRule::top_k};
      for (const LearntWith& one : findings.learnt)
        if (one.rule == rule)
          curve.points.emplace_back(
              panel == 0 ? one.ratio : mean_of(one.slowest_seconds) / mean_of(dense->slowest_seconds),
              one.mean_loss());
      std::sort(curve.points.begin(), curve.points.end());
      panels[panel].curves.push_back(std::move(curve));
    }
  for (PlotPanel& panel : panels) {
    double least = HUGE_VAL, most = 0;
    for (const Curve& curve : panel.curves)
      for (const auto& [x, y] : curve.points) {
        least = std::min(least, x);
        most = std::max(most, x);
      }
    panel.curves.push_back({.name = "none",
                            .points = {{least, dense->mean_loss()}, {most, dense->mean_loss()}},
                            .dashed = false,
                            .marked = false});
  }
  return line_plot(panels, {.title = "What compression between stages costs in loss",
                            .across = "",
                            .upwards = "loss of the test (nats)",
                            .logarithmic = true,
                            .format_x = figure_text,
                            .format_y = figure_text});
}

}  // namespace

std::vector<studies::StudyFile> pictures_of(const PublishedFusionLlm& published,
                                            const FusionLlmFindings& findings) {
  return {{"bandwidths.svg", bandwidths(published, findings)},
          {"topologies.svg", topologies_chart(published, findings)},
          {"schedules.svg", schedules_chart(published, findings)},
          {"losses.svg", losses(findings)}};
}

}  // namespace dear::studies::fusionllm
