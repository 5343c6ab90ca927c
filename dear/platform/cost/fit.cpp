#include "dear/platform/cost/fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::cost {
namespace {

void check(const std::vector<Sample>& samples) {
  if (samples.size() < 2) {
    throw ConfigError(fmt::format(
        "alpha and beta cannot be fitted to {} measured time: measure two or more sizes", samples.size()));
  }
  for (const Sample& sample : samples) {
    const bool usable = std::isfinite(sample.seconds) && sample.seconds > 0 && sample.messages >= 0 &&
                        sample.bytes >= 0 && std::isfinite(sample.messages) && std::isfinite(sample.bytes);
    if (!usable) {
      throw ConfigError(
          fmt::format("alpha and beta cannot be fitted to {:g} s for {:g} messages and {:g} bytes: times "
                      "must be above 0, "
                      "and all numbers finite",
                      sample.seconds, sample.messages, sample.bytes));
    }
  }
}

// The terms of a sample by its time: modelled time over measured time is a · alpha + b · beta.
struct Relative {
  double a;
  double b;
};

double squares(const std::vector<Relative>& rows, const Link& link) {
  double total = 0;
  for (const auto& [a, b] : rows) {
    total += std::pow(a * link.alpha_seconds + b * link.beta_seconds_per_byte - 1, 2);
  }
  return total;
}

}  // namespace

double modelled_seconds(const Link& link, const Sample& sample) {
  return sample.messages * link.alpha_seconds + sample.bytes * link.beta_seconds_per_byte;
}

LinkFit fit_link(const std::vector<Sample>& samples) {
  check(samples);
  std::vector<Relative> rows;
  double a_scale = 0;
  double b_scale = 0;
  for (const Sample& sample : samples) {
    rows.push_back({.a = sample.messages / sample.seconds, .b = sample.bytes / sample.seconds});
    a_scale = std::hypot(a_scale, rows.back().a);
    b_scale = std::hypot(b_scale, rows.back().b);
  }
  // The normal equations in units in which both columns have length 1.
  double product = 0;
  double a_sum = 0;
  double b_sum = 0;
  for (const auto& [a, b] : rows) {
    product += a / a_scale * (b / b_scale);
    a_sum += a / a_scale;
    b_sum += b / b_scale;
  }
  const double determinant = 1 - product * product;
  if (!(determinant > 1e-12)) {
    throw ConfigError(
        "alpha and beta cannot be told apart by these measured times: measure sizes that differ more, on two "
        "or more ranks");
  }
  const double alpha = (a_sum - product * b_sum) / determinant / a_scale;
  const double beta = (b_sum - product * a_sum) / determinant / b_scale;
  LinkFit fit;
  fit.link = {.alpha_seconds = alpha, .beta_seconds_per_byte = beta};
  if (alpha < 0 || beta < 0) {
    const Link without_alpha{.alpha_seconds = 0, .beta_seconds_per_byte = b_sum / b_scale};
    const Link without_beta{.alpha_seconds = a_sum / a_scale, .beta_seconds_per_byte = 0};
    fit.link = squares(rows, without_alpha) <= squares(rows, without_beta) ? without_alpha : without_beta;
  }
  for (const Sample& sample : samples) {
    const double residual = modelled_seconds(fit.link, sample) / sample.seconds - 1;
    fit.residuals.push_back(residual);
    fit.worst_residual = std::max(fit.worst_residual, std::abs(residual));
  }
  fit.rms_residual = std::sqrt(squares(rows, fit.link) / static_cast<double>(rows.size()));
  return fit;
}

}  // namespace dear::cost
