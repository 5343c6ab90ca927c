#pragma once

#include <cstdint>
#include <vector>

#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/stragglers.h"

namespace dear::methods::edge {

// The devices of a run: where they are, how fast, and their channels in each round.
class Fleet {
 public:
  // With `cells` above 1 devices lie in so many small cells, whose radius shrinks as 1 / sqrt(cells).
  Fleet(const EdgeSettings& settings, const Classification& task, int cells);

  [[nodiscard]] int size() const { return static_cast<int>(gains_.size()); }
  [[nodiscard]] double fading(std::int64_t round, int device) const;
  [[nodiscard]] double channel_hz(std::int64_t round, int device) const;  // of what it sends
  // All of these devices get one message, at the rate of the worst channel.
  [[nodiscard]] double broadcast_seconds(double bits, std::int64_t round,
                                         const std::vector<int>& devices) const;
  // For the local steps of a round.
  [[nodiscard]] double compute_seconds(std::int64_t round, int device) const;
  [[nodiscard]] double compute_joules(int device) const;
  [[nodiscard]] double least_compute_seconds(int device) const {
    return laws_[static_cast<std::size_t>(device)].shift_seconds;
  }

 private:
  const EdgeSettings& settings_;
  std::vector<double> gains_, frequencies_;
  std::vector<ComputeLaw> laws_;
  double cycles_ = 0;
};

}  // namespace dear::methods::edge
