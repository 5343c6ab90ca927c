#include "studies/training/paired.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/sim/variation.h"

namespace dear::studies::training {

using studies::Judged;

std::string Paired::text() const {
  if (std::isinf(half_width)) return fmt::format("{:+.3f} (one task)", mean);
  return fmt::format("{:+.3f} ± {:.3f}", mean, half_width);
}

std::string mean_text(double mean, double deviation, std::size_t tasks, int digits) {
  if (tasks == 1) return fmt::format("{:.{}f} (one task)", mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", mean, digits, deviation, digits);
}

Judged Paired::within(double bound) const {
  if (std::abs(mean) + half_width <= bound) return Judged::holds;
  return std::abs(mean) - half_width > bound ? Judged::fails : Judged::undecided;
}

Judged Paired::above(double bound) const {
  if (mean - half_width > bound) return Judged::holds;
  return mean + half_width <= bound ? Judged::fails : Judged::undecided;
}

Judged Paired::at_most(double bound) const {
  if (mean + half_width <= bound) return Judged::holds;
  return mean - half_width > bound ? Judged::fails : Judged::undecided;
}

Paired paired(const std::vector<double>& one, const std::vector<double>& other) {
  if (one.size() != other.size() || one.empty())
    throw ConfigError(fmt::format("{} and {} tasks make no pairs: both methods learn the same ones",
                                  one.size(), other.size()));
  std::vector<double> differences;
  for (std::size_t i = 0; i < one.size(); ++i) differences.push_back(other[i] - one[i]);
  const auto [mean, half_width] = sim::estimate(differences);
  return {mean, differences.size() == 1 ? std::numeric_limits<double>::infinity() : half_width};
}

}  // namespace dear::studies::training
