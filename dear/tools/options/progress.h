#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
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

  // `done` steps are done, those of this run in `seconds`: the first call counts its first step, also of a
  // run that goes on, and so does each that has fewer than the one before. `label` names what trains; `loss`
  // is that of the last step. The bar's line ends with the last step.
  void update(std::string_view label, std::int64_t done, double loss, double seconds);

 private:
  [[nodiscard]] bool line_due(std::int64_t done) const;

  std::ostream& out_;
  Options options_;
  double drawn_seconds_ = -1;
  std::int64_t done_ = -1, begun_at_ = 0;  // steps
};

// Shows how far a study is, part by part (studies/report/progress.h). On a terminal a line that is drawn anew
// at most five times a second; elsewhere lines, one for each tenth of a part that takes seconds, or a minute.
// Several threads may tell.
class StudyProgress {
 public:
  // `clock` gives seconds that ascend.
  StudyProgress(std::ostream& out, bool terminal, std::function<double()> clock);
  void update(std::string_view part, std::size_t done, std::size_t pieces);

 private:
  std::ostream& out_;
  const bool terminal_;
  const std::function<double()> clock_;
  std::mutex mutex_;
  std::string part_;  // under way
  std::size_t done_ = 0;
  double begun_seconds_ = 0;  // the part
  double drawn_seconds_ = 0;
};

}  // namespace dear::cli
