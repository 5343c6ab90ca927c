#include "dear/methods/edge/projected_sums.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/edge/draws.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::edge {

std::int64_t Projection::symbols_of(std::int64_t elements, double share) {
  if (!(share > 0) || share > 1)
    throw ConfigError(
        fmt::format("symbols for a share of {} of the elements cannot be: give one in (0, 1]", share));
  const auto symbols = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(elements)));
  if (symbols * elements > kMostNumbers)
    throw ConfigError(
        fmt::format("a projection of {} elements to {} symbols has over {} numbers: take a smaller model, or "
                    "a smaller share",
                    elements, symbols, kMostNumbers));
  return symbols;
}

Projection::Projection(std::int64_t elements, double share, std::uint64_t seed)
    : elements_(elements),
      symbols_(symbols_of(elements, share)),
      rows_(static_cast<std::size_t>(elements * symbols_)) {
  codec::Draw draw = draws_of(seed, Purpose::projection, 0);
  const double deviation = 1 / std::sqrt(static_cast<double>(symbols_));
  for (double& number : rows_) number = deviation * normal(draw);
}

std::vector<double> Projection::apply(std::span<const double> elements) const {
  std::vector<double> symbols;
  for (auto row = rows_.begin(); row != rows_.end(); row += elements_)
    symbols.push_back(rounds::dot({row, row + elements_}, elements));
  return symbols;
}

std::vector<double> Projection::transpose(std::span<const double> symbols) const {
  std::vector<double> elements(static_cast<std::size_t>(elements_));
  auto row = rows_.begin();
  for (const double symbol : symbols) {
    rounds::add_scaled(symbol, {row, row + elements_}, elements);
    row += elements_;
  }
  return elements;
}

std::vector<double> Projection::recover(std::span<const double> symbols, int passes, double cut) const {
  std::vector<double> estimate(static_cast<std::size_t>(elements_)), left(symbols.begin(), symbols.end());
  const auto count = static_cast<double>(symbols_);
  for (int pass = 0; pass < passes; ++pass) {
    const double threshold = cut * std::sqrt(rounds::dot(left, left) / count);
    const std::vector<double> correlated = transpose(left);
    double kept = 0;
    for (std::size_t i = 0; i < estimate.size(); ++i) {
      const double value = estimate[i] + correlated[i];
      estimate[i] = std::copysign(std::max(std::abs(value) - threshold, 0.0), value);
      kept += estimate[i] != 0 ? 1 : 0;
    }
    // The last term makes what is left behave as noise that does not depend on the estimate.
    const std::vector<double> explained = apply(estimate);
    for (std::size_t i = 0; i < left.size(); ++i)
      left[i] = symbols[i] - explained[i] + kept / count * left[i];
  }
  return estimate;
}

Received sum_projected(const OverTheAir& settings, const Projection& projection,
                       const std::vector<std::vector<double>>& sparse, std::span<const double> fading,
                       codec::Draw& noise, std::span<double> out) {
  check(settings);
  Received received;
  std::fill(out.begin(), out.end(), 0.0);
  const double power = received_power(settings);
  const auto symbols = static_cast<double>(projection.symbols() + 1);
  std::vector<double> sum(static_cast<std::size_t>(projection.symbols()));
  double amplitudes = 0;
  for (std::size_t device = 0; device < sparse.size(); ++device) {
    if (fading[device] < settings.threshold) continue;
    ++received.senders;
    const std::vector<double> projected = projection.apply(sparse[device]);
    const double amplitude = std::sqrt(symbols * power / (rounds::dot(projected, projected) + 1));
    rounds::add_scaled(amplitude, projected, sum);
    amplitudes += amplitude;
    received.power += power / fading[device];
  }
  if (received.senders == 0) return received;
  received.power /= received.senders;
  for (double& symbol : sum) symbol += normal(noise);
  const double heard = amplitudes + normal(noise);
  constexpr double kDrowned = 3;  // standard deviations of the noise of a symbol
  if (heard < kDrowned) return received;
  for (double& symbol : sum) symbol /= heard;
  const std::vector<double> recovered = projection.recover(sum);
  std::copy(recovered.begin(), recovered.end(), out.begin());
  return received;
}

}  // namespace dear::methods::edge
