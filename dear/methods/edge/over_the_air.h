#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dear/schedule/codec/draw.h"

// Sums over the air: devices send their updates at the same time as analogue symbols, and the channel adds
// them up. Broadband analogue aggregation with truncated inversion of the channel (Zhu, Wang and Huang 2019,
// arXiv 1812.11494), and precoding that follows the size of updates, COTAF (Sery and Cohen 2020, arXiv
// 2009.12787). The air is modelled: no program sends over it. Pure functions; ConfigError in one sentence.
namespace dear::methods::edge {

// E1(x), the exponential integral.
double exponential_integral(double x);

// Whether the scale of symbols follows the updates of each round, or is fixed by those of the first.
enum class Precoding : std::uint8_t { follows, fixed };

struct OverTheAir {
  double threshold = 0.1;  // g_th: a device with |h|^2 below it sends nothing
  double snr = 100;        // P / N0: mean power of a symbol beside the noise of one, over a channel of gain 1
  Precoding precoding = Precoding::follows;
};
// ConfigError for a threshold at which inversion takes infinite power, and for an SNR that is not above 0.
void check(const OverTheAir& settings);

// Under Rayleigh fading. A device is truncated with probability 1 - exp(-g_th). Where others invert their
// channels to a received power rho, rho E1(g_th) is the mean power, so rho = P / E1(g_th), beside N0 here.
double truncated_share(double threshold);
double received_power(const OverTheAir& settings);
// The mean squared error of an element of the mean of K updates, with q = exp(-g_th):
// sum_i x_i^2 (1 - q) / (q K^2) + scale^2 / (K^2 rho q^2), where symbols are x / scale.
double mean_squared_error(const OverTheAir& settings, std::span<const double> elements, double scale);

// The server makes this of the sum.
struct Received {
  int senders = 0;   // that were not truncated; with none, nothing arrived
  double power = 0;  // mean of the power of senders' symbols, times N0
};
// Writes an unbiased estimate of the mean of updates, sum of those that are sent / (K q) + noise; `fading` is
// |h|^2 by device, and no symbol's root mean square is above 1 where `scale` is at least that of each update.
Received sum_over_the_air(const OverTheAir& settings, const std::vector<std::vector<double>>& updates,
                          std::span<const double> fading, double scale, codec::Draw& noise,
                          std::span<double> out);
// The largest root mean square of elements of an update. Devices agree on it before they send: 64 bits each.
double largest_scale(const std::vector<std::vector<double>>& updates);
inline constexpr double kScaleBits = 64;

// Channel uses of d reals: a complex symbol carries two. Of a digital link: bits / log2(1 + SNR).
double analogue_uses(std::int64_t elements);
double digital_uses(double bits, double snr);

}  // namespace dear::methods::edge
