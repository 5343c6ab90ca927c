#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/predict/balance/measured_shards.h"

namespace dear::train {

class Trainer;

// Shards that follow measured speeds: DataParallelOptions::measured_shards. Ranks tell each other now and
// then what a step takes and how quick their updates are, in one all-reduce on a group of its own, under the
// next step. Where steps have drifted all of them stop, measure their links and cut shards anew. One thread
// calls, and every rank makes the same calls.
class ShardChanges {
 public:
  explicit ShardChanges(Trainer& own) : own_(own) {}

  void begin();       // all ranks together, at construction
  void step_ended();  // also of one that was given up; may replace the engine

 private:
  void send();
  void hear();
  void measure(std::vector<double> updates);

  Trainer& own_;
  std::optional<MeasuredShards> shards_;
  std::optional<Group> group_;
  Buffer numbers_;
  std::optional<Pending> pending_;
  std::int64_t steps_ = 0;
  double step_ended_ = 0;          // the last one; 0 where the next has no beginning
  std::vector<double> durations_;  // of the steps of a window, in seconds
};

// The bytes a second that each rank sends and receives, measured by messages of one rank to one other, all
// others being silent; `updates`: of each rank's optimiser. All ranks together, while nothing else is on its
// way. The median of three of each pair of neighbours counts, of messages that take 10 ms or are 4 MiB long.
std::vector<RankSpeed> measure_speeds(const Group& group, const std::vector<double>& updates);

}  // namespace dear::train
