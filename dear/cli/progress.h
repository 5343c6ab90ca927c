#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace dear::cli {

// Shows how far a training run is. On a terminal it is a bar on one line, drawn anew at most five times a
// second; elsewhere a line for each tenth of the steps, and for steps 1, 10, 100, ...
class Progress {
 public:
  struct Options {
    std::int64_t steps = 1;
    std::int64_t characters_per_step = 0;  // 0: no speed is shown
    bool terminal = false;
  };
  Progress(std::ostream& out, Options options);

  // `done` steps took `seconds` since the run began; `label` names what trains; `loss` is that of the last
  // step. The bar's line ends with the last step.
  void update(std::string_view label, std::int64_t done, double loss, double seconds);

 private:
  [[nodiscard]] bool line_due(std::int64_t done) const;

  std::ostream& out_;
  Options options_;
  double drawn_seconds_ = -1;
};

}  // namespace dear::cli
