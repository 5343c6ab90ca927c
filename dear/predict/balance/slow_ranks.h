#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dear {

// ComputeSeconds are what a rank computed in a window of steps, in seconds a step without exposed
// communication.
struct ComputeSeconds {
  double forward = 0;   // up to the first gradient: loading of data, the program's own code, forward passes
  double backward = 0;  // from then on: backward passes, updates, the rest of step()
  [[nodiscard]] double sum() const { return forward + backward; }
};

// When a rank counts as slow.
struct SlowRankLimits {
  double behind = 0.2;           // of the median rank's time
  int windows = 3;               // one after another
  double window_seconds = 30;    // about; whole steps
  std::int64_t first_step = 64;  // the first window begins after so many
};

// Finds ranks whose computation stays behind. It is told the same on every rank. For one thread.
class SlowRanks {
 public:
  explicit SlowRanks(std::vector<std::string> hosts, SlowRankLimits limits = {});

  // By rank, of the window that has ended, which took `window_seconds`. A sentence on each rank that has been
  // behind for so many windows now, and once more each time it comes back after it had recovered.
  [[nodiscard]] std::vector<std::string> window_ended(const std::vector<ComputeSeconds>& ranks,
                                                      double window_seconds);

 private:
  std::vector<std::string> hosts_;
  SlowRankLimits limits_;
  std::vector<int> behind_;  // windows, by rank
  std::vector<double> for_seconds_;
};

}  // namespace dear
