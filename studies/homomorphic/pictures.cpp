#include "studies/homomorphic/report.h"

#include <fmt/format.h>

#include "dear/base/charts/line_plot.h"

namespace dear::studies::homomorphic {
namespace {

constexpr std::size_t kPoints = 20;  // of a curve of the loss

std::string number(double value) { return fmt::format("{:g}", value); }

studies::StudyFile recovery(const Findings& findings) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  for (const RecoveryRate& rate : findings.recovery) {
    const std::string name = fmt::format("{} keys", rate.keys);
    if (panel.curves.empty() || panel.curves.back().name != name)
      panel.curves.push_back({.name = name, .points = {}});
    panel.curves.back().points.emplace_back(rate.rows_per_key, 100 * rate.whole);
  }
  return {"recovery.svg",
          charts::line_plot({panel}, {.title = "Groups of keys that come out whole",
                                      .across = "rows for each key",
                                      .upwards = "%",
                                      .logarithmic_x = false,
                                      .format_x = [](double x) { return fmt::format("{:.2f}", x); },
                                      .format_y = number})};
}

studies::StudyFile sizes(const HomomorphicOptions& options, const Findings& findings) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  const auto add = [&](const std::string& name, double SizeAt::* times, bool dashed) {
    charts::Curve curve{.name = name, .points = {}, .dashed = dashed};
    for (const SizeAt& size : findings.sizes) curve.points.emplace_back(100 * size.density, size.*times);
    panel.curves.push_back(std::move(curve));
  };
  add("with a bitmap", &SizeAt::bitmap, false);
  add("32 / (1 + 32 gamma s)", &SizeAt::bound, true);
  add("with a Bloom filter", &SizeAt::bloom, false);
  add(fmt::format("with owners, {} ranks", options.sizes.ranks), &SizeAt::owners, false);
  return {"sizes.svg", charts::line_plot({panel}, {.title = "How many times fewer bytes than dense",
                                                   .across = "density of the union, %",
                                                   .upwards = "times",
                                                   .logarithmic = true,
                                                   .format_x = number,
                                                   .format_y = number})};
}

studies::StudyFile throughputs(const HomomorphicOptions& options, const Findings& findings) {
  struct Way {
    const char* title;
    SketchSpec::Index index;
    Peeling peeling;
  };
  const int ranks = options.speeds.ranks.front();
  std::vector<charts::PlotPanel> panels;
  for (const Way& way : {Way{"everyone peels, bitmap", SketchSpec::Index::bitmap, Peeling::everyone},
                         Way{"owners peel, bitmap", SketchSpec::Index::bitmap, Peeling::owners},
                         Way{"owners peel, Bloom filter", SketchSpec::Index::bloom, Peeling::owners}}) {
    charts::PlotPanel panel{.title = way.title, .curves = {}};
    for (const double density : options.speeds.densities) {
      charts::Curve curve{.name = fmt::format("density {:g} %", 100 * density), .points = {}};
      const SketchSpeed& speed =
          findings.speed_of(way.index, way.peeling, way.peeling == Peeling::everyone ? 1 : ranks, density);
      for (const double bits : options.bits_per_second)
        curve.points.emplace_back(1e-9 * bits, throughput(options, speed, ranks, bits / 8));
      panel.curves.push_back(std::move(curve));
    }
    panels.push_back(std::move(panel));
  }
  return {"throughput.svg",
          charts::line_plot(
              panels, {.title = fmt::format("Aggregation throughput, times that of dense, {} ranks", ranks),
                       .across = "bandwidth, Gb/s",
                       .upwards = "times",
                       .logarithmic = true,
                       .format_x = number,
                       .format_y = number})};
}

studies::StudyFile losses(const Findings& findings) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  for (const MethodLearned& one : findings.learned) {
    charts::Curve curve{.name = name_of(one.method),
                        .points = {},
                        .dashed = one.method && one.method->scheme == Scheme::sketch};
    const std::vector<Learned>& runs = one.at_best().by_seed;
    const std::size_t steps = runs.front().losses.size();
    const std::size_t each = std::max<std::size_t>(1, steps / kPoints);
    for (std::size_t begin = 0; begin + each <= steps; begin += each) {
      double sum = 0;
      for (const Learned& run : runs)
        for (std::size_t step = begin; step < begin + each; ++step)
          sum += step < run.losses.size() ? run.losses[step] : run.losses.back();
      curve.points.emplace_back(begin + (each - 1) / 2.0, sum / static_cast<double>(runs.size() * each));
    }
    panel.curves.push_back(std::move(curve));
  }
  return {"losses.svg",
          charts::line_plot({panel}, {.title = "Loss of the recommender, each at its best learning rate",
                                      .across = "step",
                                      .upwards = "loss, mean of seeds",
                                      .logarithmic_x = false,
                                      .format_x = [](double x) { return fmt::format("{:.0f}", x); },
                                      .format_y = [](double y) { return fmt::format("{:.2f}", y); }})};
}

}  // namespace

std::vector<studies::StudyFile> pictures_of(const HomomorphicOptions& options, const Findings& findings) {
  return {recovery(findings), sizes(options, findings), throughputs(options, findings), losses(findings)};
}

}  // namespace dear::studies::homomorphic
