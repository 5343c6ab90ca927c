#include "dear/methods/rounds/stage.h"

#include <algorithm>

namespace dear::methods::rounds {

Stage::Stage(const Settings& settings, std::span<const double> point, std::int64_t primal,
             std::int64_t clients)
    : settings_(settings),
      steps_left_(settings.stages.steps),
      gamma_(settings.gamma),
      around_(point.begin(), point.begin() + primal),
      sums_(static_cast<std::size_t>(clients), std::vector<double>(static_cast<std::size_t>(primal) + 1)) {}

void Stage::step(std::int64_t client, std::span<const double> gradient, std::span<double> point) {
  const std::size_t primal = around_.size();
  const double pull = gamma_ / settings_.stages.proximal;
  std::vector<double>& sums = sums_[static_cast<std::size_t>(client)];
  for (std::size_t i = 0; i < primal; ++i) {
    point[i] = (point[i] + pull * around_[i] - gamma_ * gradient[i]) / (1 + pull);
    sums[i] += point[i];
  }
  for (std::size_t i = primal; i < point.size(); ++i) point[i] -= gamma_ * gradient[i];
  sums[primal] += 1;
}

std::span<const double> Stage::sums_of(std::int64_t client) const {
  return sums_[static_cast<std::size_t>(client)];
}

bool Stage::end(std::span<const double> mean_of_sums) {
  // A client that was absent has fewer iterates, which count as much as those of others.
  for (std::size_t i = 0; i < around_.size(); ++i) around_[i] = mean_of_sums[i] / mean_of_sums.back();
  for (std::vector<double>& sums : sums_) std::fill(sums.begin(), sums.end(), 0.0);
  const bool more = !last();
  ++number_;
  steps_left_ = settings_.stages.steps;
  gamma_ /= settings_.stages.shrink;
  return more;
}

}  // namespace dear::methods::rounds
