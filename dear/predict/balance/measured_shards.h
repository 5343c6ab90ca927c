#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "dear/predict/balance/shard_weights.h"

namespace dear {

// When shards follow the measured speeds of links and updates.
struct ShardMeasuring {
  // Ranks tell each other the median time of so many steps, and speeds are measured anew where it has
  // drifted.
  int window = 16;
  // A step has drifted that takes this factor longer or shorter than after the last decision; above 1.
  double drift = 1.2;
  // Shards change where reductions, updates and gathers are foreseen to be quicker by this factor, at
  // least 1.
  double least_gain = 1.05;
  // At most this fraction of the time of training is spent on measurements, above 0.
  double most_cost = 0.02;
};

// Decides when links are measured and which shards follow from that. It is told the same on every rank and so
// decides the same. For one thread.
class MeasuredShards {
 public:
  // ConfigError for a window below 1, a drift not above 1, a gain below 1 and a cost not above 0. `weights`:
  // of the shards in force, one for each rank.
  MeasuredShards(const ShardMeasuring& options, std::vector<double> weights);

  // After `step` steps, `seconds` being what the slowest rank says a step takes now:
  // whether the speeds of all ranks are to be measured now.
  [[nodiscard]] bool wants_speeds(std::int64_t step, double seconds);
  // Takes what was measured, and how long that took. Returns the shards that are to be in force from now on;
  // none where those in force stay. A speed of 0 is one that nobody knows: it counts as the mean of the
  // others.
  [[nodiscard]] std::optional<ShardPlan> measured(std::vector<RankSpeed> speeds, ShardUse use,
                                                  double cost_seconds);

  [[nodiscard]] const ShardMeasuring& options() const { return options_; }
  [[nodiscard]] const std::vector<double>& weights() const { return weights_; }

 private:
  ShardMeasuring options_;
  std::vector<double> weights_;
  double settled_seconds_ = 0;  // of a step, after the last decision; 0 where it is not known yet
  double last_seconds_ = 0;
  std::int64_t last_step_ = 0, next_measurement_ = 0;
};

}  // namespace dear
