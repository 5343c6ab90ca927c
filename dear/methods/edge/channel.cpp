#include "dear/methods/edge/channel.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {

const std::vector<PathLoss>& path_losses() {
  static const std::vector<PathLoss> kPathLosses = {
      {"macro", "3GPP, large cells: 128.1 + 37.6 log10(km)", 128.1, 37.6},
      {"pico", "3GPP, small cells: 140.7 + 36.7 log10(km)", 140.7, 36.7},
      {"free-space", "a clear view at 2 GHz: 98.5 + 20 log10(km)", 98.5, 20},
  };
  return kPathLosses;
}

void check(const Cell& cell) {
  const std::pair<const char*, double> amounts[] = {{"bandwidth", cell.bandwidth_hz},
                                                    {"power of a device", cell.power_watts},
                                                    {"power of the base station", cell.down_power_watts},
                                                    {"noise", cell.noise_watts_per_hz},
                                                    {"nearest distance", cell.nearest_m}};
  for (const auto& [name, value] : amounts)
    if (!std::isfinite(value) || value <= 0)
      throw ConfigError(
          fmt::format("the {} of a cell is {}, but must be a finite number above 0", name, value));
  if (!std::isfinite(cell.farthest_m) || cell.farthest_m < cell.nearest_m)
    throw ConfigError(
        fmt::format("devices between {:g} m and {:g} m cannot be placed: give the shorter first",
                    cell.nearest_m, cell.farthest_m));
  find_named(path_losses(), cell.path_loss, "path loss");
}

double path_gain(const PathLoss& loss, double distance_m) {
  return std::pow(10, -(loss.at_1_km_db + loss.per_decade_db * std::log10(distance_m / 1000)) / 10);
}

std::vector<double> draw_distances(const Cell& cell, int devices, std::uint64_t seed) {
  std::vector<double> distances;
  const double nearest = cell.nearest_m * cell.nearest_m, farthest = cell.farthest_m * cell.farthest_m;
  for (int device = 0; device < devices; ++device) {
    codec::Draw draw = draws_of(seed, Purpose::place, 0, device);
    distances.push_back(std::sqrt(nearest + unit(draw) * (farthest - nearest)));
  }
  return distances;
}

double draw_fading(std::uint64_t seed, std::int64_t round, int device) {
  codec::Draw draw = draws_of(seed, Purpose::fading, round, device);
  return exponential(draw);
}

double most_rate(double channel_hz) { return channel_hz / std::numbers::ln2; }

double rate_over(double bandwidth_hz, double channel_hz) {
  if (bandwidth_hz <= 0) return 0;
  return bandwidth_hz * std::log1p(channel_hz / bandwidth_hz) / std::numbers::ln2;
}

// With x = s / b and y = rate ln 2 / s, the root of ln(1 + x) = y x. Since ln(1 + x) <= x / sqrt(1 + x), it
// is at most 1 / y^2 - 1, from where Newton's method goes down to it.
double bandwidth_for_rate(double rate, double channel_hz) {
  if (rate <= 0) return 0;
  const double y = rate / most_rate(channel_hz);
  if (!(y < 1)) return INFINITY;
  constexpr int kMostSteps = 100;
  double x = 1 / (y * y) - 1;
  for (int step = 0; step < kMostSteps; ++step) {
    const double next = x - (std::log1p(x) - y * x) / (1 / (1 + x) - y);
    if (!(next < x) || next <= 0) break;
    const bool ends = x - next <= 1e-15 * x;
    x = next;
    if (ends) break;
  }
  return channel_hz / x;
}

double efficiency(double bandwidth_hz, double channel_hz) {
  return std::log1p(channel_hz / bandwidth_hz) / std::numbers::ln2;
}

}  // namespace dear::methods::edge
