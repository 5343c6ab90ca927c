#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace dear::cli {

// Shows how far a training run is: on a terminal a bar on one line, drawn anew five times a second at most;
// elsewhere a line for each tenth of the steps.
class Progress {
 public:
  struct Options {
    std::string label;  // the policy
    std::int64_t steps = 1;
    std::int64_t characters_per_step = 0;
    bool terminal = false;
  };
  Progress(std::ostream& out, Options options);

  // `done` steps took `seconds` since the run began; `loss` is the last one's. The bar's line ends with the
  // last step.
  void update(std::int64_t done, double loss, double seconds);

 private:
  std::ostream& out_;
  Options options_;
  double drawn_seconds_ = -1;
};

}  // namespace dear::cli
