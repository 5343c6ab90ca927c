#include "dear/systems/train_command/compression_plot.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/charts/line_plot.h"
#include "dear/base/vocabulary/error.h"

namespace dear::train_command {
namespace {

constexpr std::size_t kMostPoints = 200;  // of a curve

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

std::vector<double> sums(const std::vector<double>& values) {
  std::vector<double> result(values.size());
  std::partial_sum(values.begin(), values.end(), result.begin());
  return result;
}

// Losses that are numbers, of steps that lie evenly and the last.
charts::Curve curve_of(const std::string& name, const std::vector<double>& across,
                       const std::vector<double>& losses) {
  charts::Curve curve{.name = name, .points = {}};
  const std::size_t steps = std::min(across.size(), losses.size());
  const std::size_t each = steps / kMostPoints + 1;
  for (std::size_t step = 0; step < steps; ++step)
    if ((step % each == 0 || step + 1 == steps) && std::isfinite(losses[step]))
      curve.points.emplace_back(across[step], losses[step]);
  return curve;
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

}  // namespace

std::string plot_of_compressions(const std::vector<TrainResult>& runs) {
  if (runs.empty()) throw ConfigError("a plot of no runs: compare some");
  charts::PlotPanel by_bytes{.title = "", .curves = {}, .across = "sent by a rank, MB"};
  charts::PlotPanel by_seconds{.title = "", .curves = {}, .across = "time, s"};
  for (const TrainResult& run : runs) {
    const std::vector<double> losses = smoothed(run.losses);
    const std::vector<double> megabytes(losses.size(), run.sent.bytes / 1e6);
    by_bytes.curves.push_back(curve_of(run.sent.compression, sums(megabytes), losses));
    by_seconds.curves.push_back(curve_of(run.sent.compression, sums(run.step_seconds), losses));
  }
  return charts::line_plot({by_bytes, by_seconds},
                           {.title = "Loss against bytes that a rank sent, and against time",
                            .across = "",
                            .upwards = "loss, mean of the last steps",
                            .logarithmic_x = false,
                            .format_x = number,
                            .format_y = number});
}

}  // namespace dear::train_command
