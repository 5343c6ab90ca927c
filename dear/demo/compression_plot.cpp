#include "dear/demo/compression_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/drawing/svg.h"

namespace dear::demo {
namespace {

constexpr double kWidth = 460, kHeight = 300, kLeft = 60, kTop = 40, kGap = 70, kFoot = 50, kLegendRow = 20;
constexpr int kTicks = 4;

std::vector<double> smoothed(const std::vector<double>& losses) {
  const std::size_t window = std::max<std::size_t>(1, losses.size() / 20);
  std::vector<double> result;
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i];
    if (i >= window) sum -= losses[i - window];
    result.push_back(sum / static_cast<double>(std::min(i + 1, window)));
  }
  return result;
}

struct Curve {
  std::string name;
  std::vector<double> across, losses;
};

// A scale from the value `least`, at `begin`, to `most`, so many points further; either may be the larger
// one.
struct Scale {
  double least, most, begin, length;
  [[nodiscard]] double operator()(double value) const {
    return begin + (most != least ? (value - least) / (most - least) : 0) * length;
  }
};

void draw_panel(drawing::Svg& svg, double left, const std::vector<Curve>& curves, const std::string& across,
                double least_loss, double most_loss) {
  double most = 0;
  for (const Curve& curve : curves) most = std::max(most, curve.across.back());
  const Scale x{.least = 0, .most = most, .begin = left, .length = kWidth};
  const Scale y{.least = most_loss, .most = least_loss, .begin = kTop, .length = kHeight};
  svg.line(left, kTop, left, kTop + kHeight).line(left, kTop + kHeight, left + kWidth, kTop + kHeight);
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double part = static_cast<double>(tick) / kTicks;
    const double loss = least_loss + part * (most_loss - least_loss);
    svg.text(left - 8, y(loss) + 4, fmt::format("{:.2f}", loss),
             {.anchor = drawing::Anchor::end, .size = 11});
    svg.text(x(part * most), kTop + kHeight + 16, fmt::format("{:.3g}", part * most),
             {.anchor = drawing::Anchor::middle, .size = 11});
  }
  svg.text(left + kWidth / 2, kTop + kHeight + 36, across, {.anchor = drawing::Anchor::middle});
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t step = 0; step < curves[i].losses.size(); ++step)
      if (std::isfinite(curves[i].losses[step]))
        points.emplace_back(x(curves[i].across[step]), y(curves[i].losses[step]));
    svg.polyline(points, drawing::kColours[i % drawing::kColours.size()], i >= drawing::kColours.size());
  }
}

std::vector<double> sums(const std::vector<double>& values) {
  std::vector<double> result(values.size());
  std::partial_sum(values.begin(), values.end(), result.begin());
  return result;
}

}  // namespace

std::string plot_of_compressions(const std::vector<TrainResult>& runs) {
  if (runs.empty()) throw ConfigError("a plot of no runs: compare some");
  std::vector<Curve> by_bytes, by_seconds;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const TrainResult& run : runs) {
    std::vector<double> losses = smoothed(run.losses);
    for (const double loss : losses)
      if (std::isfinite(loss)) least = std::min(least, loss), most = std::max(most, loss);
    const std::vector<double> megabytes(losses.size(), run.sent.bytes / 1e6);
    by_bytes.push_back({.name = run.sent.compression, .across = sums(megabytes), .losses = losses});
    by_seconds.push_back(
        {.name = run.sent.compression, .across = sums(run.step_seconds), .losses = std::move(losses)});
  }
  const double legend = kTop + kHeight + kFoot + 10;
  drawing::Svg svg(kLeft + 2 * kWidth + kGap + 20,
                   legend + kLegendRow * static_cast<double>(runs.size()) + 10,
                   "Loss against bytes sent and against seconds");
  svg.text(kLeft, 24, "Loss against bytes that a rank sent, and against seconds", {.size = 15});
  draw_panel(svg, kLeft, by_bytes, "MB sent by a rank", least, most);
  draw_panel(svg, kLeft + kWidth + kGap, by_seconds, "seconds", least, most);
  for (std::size_t i = 0; i < by_bytes.size(); ++i) {
    const double at = legend + kLegendRow * static_cast<double>(i);
    svg.line(kLeft, at, kLeft + 24, at, drawing::kColours[i % drawing::kColours.size()], 3);
    svg.text(kLeft + 32, at + 4, by_bytes[i].name);
  }
  return std::move(svg).finish();
}

}  // namespace dear::demo
