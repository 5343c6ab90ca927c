#include "dear/predict/balance/measured_shards.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

void fill_in(std::vector<RankSpeed>& speeds, double RankSpeed::* speed) {
  double known = 0;
  int ranks = 0;
  for (const RankSpeed& one : speeds) {
    if (!(one.*speed > 0) || !std::isfinite(one.*speed)) continue;
    known += one.*speed;
    ++ranks;
  }
  for (RankSpeed& one : speeds)
    if (!(one.*speed > 0)) one.*speed = ranks > 0 ? known / ranks : std::numeric_limits<double>::infinity();
}

}  // namespace

MeasuredShards::MeasuredShards(const ShardMeasuring& options, std::vector<double> weights)
    : options_(options), weights_(std::move(weights)) {
  if (options_.window < 1 || !(options_.drift > 1) || !(options_.least_gain >= 1) ||
      !(options_.most_cost > 0))
    throw ConfigError(
        fmt::format("measured shards with window {}, drift {}, least_gain {} and most_cost {}: give a window "
                    "and a gain of at least 1, a drift above 1 and a cost above 0",
                    options_.window, options_.drift, options_.least_gain, options_.most_cost));
}

bool MeasuredShards::wants_speeds(std::int64_t step, double seconds) {
  last_step_ = step;
  last_seconds_ = seconds;
  if (settled_seconds_ == 0 && next_measurement_ > 0) {  // the first window after a decision
    settled_seconds_ = seconds;
    return false;
  }
  if (step < next_measurement_) return false;
  return settled_seconds_ == 0 || seconds > settled_seconds_ * options_.drift ||
         seconds * options_.drift < settled_seconds_;
}

std::optional<ShardPlan> MeasuredShards::measured(std::vector<RankSpeed> speeds, ShardUse use,
                                                  double cost_seconds) {
  fill_in(speeds, &RankSpeed::send);
  fill_in(speeds, &RankSpeed::receive);
  fill_in(speeds, &RankSpeed::update);
  // The first window after it says what a step takes now, and is not itself compared.
  const double steps = last_seconds_ > 0 ? cost_seconds / (options_.most_cost * last_seconds_) : 0;
  next_measurement_ = last_step_ + std::max<std::int64_t>(2L * options_.window, std::llround(steps));
  settled_seconds_ = 0;
  ShardPlan plan = plan_shards(speeds, use);
  if (!(seconds_of_shards(speeds, weights_, use) >= plan.seconds * options_.least_gain) || plan.seconds == 0)
    return std::nullopt;
  weights_ = plan.weights;
  return plan;
}

}  // namespace dear
