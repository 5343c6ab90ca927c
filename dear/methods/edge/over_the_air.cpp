#include "dear/methods/edge/over_the_air.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {

double exponential_integral(double x) { return -std::expint(-x); }

void check(const OverTheAir& settings) {
  if (!std::isfinite(settings.threshold) || settings.threshold <= 0)
    throw ConfigError(
        fmt::format("a threshold of {} lets devices invert channels of no gain, which takes infinite power: "
                    "give one above 0",
                    settings.threshold));
  if (!std::isfinite(settings.snr) || settings.snr <= 0)
    throw ConfigError(
        fmt::format("a signal of {} times the noise cannot be: give a finite number of dB", settings.snr));
  if (settings.threshold > 50)
    throw ConfigError(
        fmt::format("a threshold of {} truncates every device: give less than 50", settings.threshold));
}

double truncated_share(double threshold) { return -std::expm1(-threshold); }

double received_power(const OverTheAir& settings) {
  return settings.snr / exponential_integral(settings.threshold);
}

double mean_squared_error(const OverTheAir& settings, std::span<const double> elements, double scale) {
  const double sent = std::exp(-settings.threshold);
  const auto devices = static_cast<double>(elements.size());
  double sum = 0;
  for (const double element : elements) sum += element * element;
  return (sum * (1 - sent) / sent + scale * scale / (received_power(settings) * sent * sent)) /
         (devices * devices);
}

Received sum_over_the_air(const OverTheAir& settings, const std::vector<std::vector<double>>& updates,
                          std::span<const double> fading, double scale, codec::Draw& noise,
                          std::span<double> out) {
  check(settings);
  Received received;
  std::fill(out.begin(), out.end(), 0.0);
  const double power = received_power(settings);
  const auto elements = static_cast<double>(out.size());
  for (std::size_t device = 0; device < updates.size(); ++device) {
    if (fading[device] < settings.threshold) continue;
    ++received.senders;
    double squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += updates[device][i];
      squares += updates[device][i] * updates[device][i];
    }
    if (scale > 0) received.power += power / fading[device] * squares / (scale * scale * elements);
  }
  if (received.senders == 0) return received;
  received.power /= received.senders;
  const double share = static_cast<double>(updates.size()) * std::exp(-settings.threshold);
  for (double& element : out) element = (element + scale / std::sqrt(power) * normal(noise)) / share;
  return received;
}

double largest_scale(const std::vector<std::vector<double>>& updates) {
  double largest = 0;
  for (const std::vector<double>& update : updates) {
    double squares = 0;
    for (const double element : update) squares += element * element;
    largest = std::max(largest, std::sqrt(squares / static_cast<double>(update.size())));
  }
  return largest;
}

double analogue_uses(std::int64_t elements) { return std::ceil(static_cast<double>(elements) / 2); }
double digital_uses(double bits, double snr) { return bits / std::log2(1 + snr); }

}  // namespace dear::methods::edge
