#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// Radio channels: path loss, fading, rates. All here are values and pure functions.
namespace dear::methods::edge {

// Loss in dB at a distance. Those of the 3GPP are of TR 36.814, table A.2.1.1, at 2 GHz.
struct PathLoss {
  std::string_view name, summary;
  double at_1_km_db = 0;
  double per_decade_db = 0;
};
const std::vector<PathLoss>& path_losses();

// A cell: a base station, and devices at distances from it that are drawn uniformly over the ring's area.
struct Cell {
  double bandwidth_hz = 1e7;
  double power_watts = 0.1;              // of a device, 20 dBm
  double down_power_watts = 10;          // of the base station, over the whole bandwidth, 40 dBm
  double noise_watts_per_hz = 3.98e-21;  // -174 dBm
  double nearest_m = 50, farthest_m = 500;
  std::string_view path_loss = "macro";
};
// ConfigError for a cell that cannot be, in one sentence.
void check(const Cell& cell);

double path_gain(const PathLoss& loss, double distance_m);
// Distances of devices: each depends on the seed and its own number.
std::vector<double> draw_distances(const Cell& cell, int devices, std::uint64_t seed);
// |h|^2 of Rayleigh fading, exponential with mean 1: a block of one round.
double draw_fading(std::uint64_t seed, std::int64_t round, int device);

// Bits a second over so many hertz, b log2(1 + s / b), where s = P g / N0 in hertz is the channel: the signal
// to noise ratio over one hertz. The rate grows with b towards s / ln 2.
double rate_over(double bandwidth_hz, double channel_hz);
double most_rate(double channel_hz);
// The bandwidth for a rate: infinite from most_rate() on, 0 for a rate of 0.
double bandwidth_for_rate(double rate, double channel_hz);

// log2(1 + SNR), with the power spread over so many hertz.
double efficiency(double bandwidth_hz, double channel_hz);

}  // namespace dear::methods::edge
