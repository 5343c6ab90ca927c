#include "dear/methods/edge/fleet.h"

#include <algorithm>
#include <cmath>

#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {

Fleet::Fleet(const EdgeSettings& settings, const Classification& task, int cells) : settings_(settings) {
  Cell cell = settings.cell;
  cell.farthest_m = std::max(cell.nearest_m, cell.farthest_m / std::sqrt(cells));
  const PathLoss& loss = find_named(path_losses(), cell.path_loss, "path loss");
  const ClassificationShape& shape = task.shape();
  const int samples = settings.local_steps * (settings.batch == 0 ? shape.samples : settings.batch);
  cycles_ = settings.cycles_per_sample * samples;
  std::vector<EdgeDevice> devices = settings.devices;
  if (devices.empty())
    for (const double distance : draw_distances(cell, shape.devices, settings.seed)) {
      codec::Draw draw = draws_of(settings.seed, Purpose::place, 1, static_cast<int>(devices.size()));
      devices.push_back(
          {.distance_m = distance,
           .frequency_hz = settings.slowest_hz + unit(draw) * (settings.fastest_hz - settings.slowest_hz)});
    }
  for (const EdgeDevice& device : devices) {
    gains_.push_back(path_gain(loss, device.distance_m));
    frequencies_.push_back(device.frequency_hz);
    const double seconds = cycles_ / frequencies_.back();
    laws_.push_back({.shift_seconds = seconds, .mean_seconds = settings.random_share * seconds});
  }
}

double Fleet::fading(std::int64_t round, int device) const {
  return draw_fading(settings_.seed, round, device);
}

double Fleet::channel_hz(std::int64_t round, int device) const {
  return settings_.cell.power_watts * gains_[index_of(device)] * fading(round, device) /
         settings_.cell.noise_watts_per_hz;
}

double Fleet::broadcast_seconds(double bits, std::int64_t round, const std::vector<int>& devices) const {
  double worst = INFINITY;
  for (const int device : devices) worst = std::min(worst, channel_hz(round, device));
  worst *= settings_.cell.down_power_watts / settings_.cell.power_watts;
  return devices.empty() ? 0 : bits / rate_over(settings_.cell.bandwidth_hz, worst);
}

double Fleet::compute_seconds(std::int64_t round, int device) const {
  return draw_compute(laws_[index_of(device)], 1, settings_.seed, round, device);
}

double Fleet::compute_joules(int device) const {
  return computing_joules(settings_.capacitance, frequencies_[index_of(device)], cycles_);
}

}  // namespace dear::methods::edge
