#include "dear/methods/edge/quantisers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {
namespace {

constexpr double kRealBits = 32;  // of a norm, a scale, or an element that is not quantised

void fp32(std::span<const double> values, const QuantiserOptions&, codec::Draw&, std::span<double> out) {
  std::copy(values.begin(), values.end(), out.begin());
}
double fp32_bits(std::int64_t elements, const QuantiserOptions&) {
  return kRealBits * static_cast<double>(elements);
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// |v| sign(v_i) l / s, where l is s |v_i| / |v|, rounded up as often as keeps the mean.
void qsgd(std::span<const double> values, const QuantiserOptions& options, codec::Draw& draw,
          std::span<double> out) {
  const double whole = norm(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (whole == 0) {
      out[i] = 0;
      continue;
    }
    const double level = std::floor(options.levels * std::abs(values[i]) / whole + unit(draw));
    out[i] = std::copysign(whole * level / options.levels, values[i]);
  }
}
double qsgd_bits(std::int64_t elements, const QuantiserOptions& options) {
  return kRealBits + static_cast<double>(elements) * (1 + std::ceil(std::log2(options.levels + 1.0)));
}

void ternary(std::span<const double> values, const QuantiserOptions&, codec::Draw& draw,
             std::span<double> out) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i)
    out[i] = unit(draw) * most < std::abs(values[i]) ? std::copysign(most, values[i]) : 0;
}
double ternary_bits(std::int64_t elements, const QuantiserOptions&) {
  return kRealBits + 2 * static_cast<double>(elements);
}

double mean_magnitude(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return sum / static_cast<double>(values.size());
}
// A sign bit has no zero: an element of zero counts as positive, in a vector that is not zero.
void scaled_sign(std::span<const double> values, const QuantiserOptions&, codec::Draw&,
                 std::span<double> out) {
  const double scale = mean_magnitude(values);
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i] < 0 ? -scale : scale;
}
double sign_bits(std::int64_t elements, const QuantiserOptions&) {
  return kRealBits + static_cast<double>(elements);
}

// By the codec of training, on one segment of fp32.
void top_k(std::span<const double> values, const QuantiserOptions& options, codec::Draw&,
           std::span<double> out) {
  const std::vector<float> floats(values.begin(), values.end());
  std::vector<float> arrived(values.size());
  const auto codec =
      codec::make_gatherable({.scheme = Scheme::top_k, .ratio = options.ratio},
                             {{.range = {0, static_cast<std::int64_t>(values.size())}, .key = 1}}, 0);
  std::vector<std::byte> payload(static_cast<std::size_t>(codec->bytes(0)));
  codec->encode(floats, 0, payload.data());
  codec->add(payload.data(), 0, 1, arrived);
  std::copy(arrived.begin(), arrived.end(), out.begin());
}
double top_k_bits(std::int64_t elements, const QuantiserOptions& options) {
  const auto kept = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(options.ratio * static_cast<double>(elements))));
  return 2 * kRealBits * static_cast<double>(kept);
}

}  // namespace

const std::vector<Quantiser>& quantisers() {
  static const std::vector<Quantiser> kQuantisers = {
      {"fp32", "whole updates", true, false, fp32, fp32_bits},
      {"qsgd", "levels of the norm, rounded at random (arXiv 1610.02132)", true, false, qsgd, qsgd_bits},
      {"ternary", "nothing or the largest magnitude, at random (arXiv 1705.07878)", true, false, ternary,
       ternary_bits},
      {"sign", "signs, times the mean magnitude (arXiv 1802.04434)", false, false, scaled_sign, sign_bits},
      {"sign-majority", "the same; the server takes the majority of signs", false, true, scaled_sign,
       sign_bits},
      {"top-k", "the largest elements, and their indices; others wait (arXiv 1809.07599)", false, false,
       top_k, top_k_bits},
  };
  return kQuantisers;
}

const Quantiser& find_quantiser(std::string_view name, const QuantiserOptions& options) {
  const Quantiser& found = find_named(quantisers(), name, "quantiser");
  if (options.levels < 1)
    throw ConfigError(fmt::format("{} levels tell nothing but a norm: give at least 1", options.levels));
  if (!(options.ratio > 0 && options.ratio <= 1))
    throw ConfigError(fmt::format("a ratio of {} cannot be: give one above 0, at most 1", options.ratio));
  return found;
}

void quantise(const Quantiser& quantiser, std::span<const double> values, const QuantiserOptions& options,
              codec::Draw& draw, std::span<double> out) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(fmt::format("element {} of an update is {}: take a smaller step size", i, values[i]));
  quantiser.apply(values, options, draw, out);
}

double qsgd_variance_bound(std::int64_t elements, int levels) {
  const auto d = static_cast<double>(elements);
  return std::min(d / levels / levels, std::sqrt(d) / levels);
}

void ErrorMemory::add_to(std::span<double> update) {
  if (kept_.empty()) kept_.resize(update.size());
  for (std::size_t i = 0; i < update.size(); ++i) update[i] += kept_[i];
}
void ErrorMemory::keep(std::span<const double> wanted, std::span<const double> sent) {
  for (std::size_t i = 0; i < wanted.size(); ++i) kept_[i] = wanted[i] - sent[i];
}

}  // namespace dear::methods::edge
