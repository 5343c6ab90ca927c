#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/predict/balance/slow_ranks.h"

namespace dear::train {

class Trainer;

// Times what this rank computes, and finds out whether a rank stays behind: DataParallelOptions::slow_ranks.
// After the first steps ranks tell each other their times every half minute, in one all-reduce on a group of
// its own, under the next step; rank 0 says who is slow. Not on a device with streams, whose times the host
// does not know.
class Stragglers {
 public:
  explicit Stragglers(Trainer& own) : own_(own) {}

  void backward_began();  // a pass's first gradient has come; on the thread of the hooks, before step_ended()
  void step_ended();      // taken, on every rank alike

 private:
  void send();
  void hear();
  [[nodiscard]] double exposed() const;

  Trainer& own_;
  double step_began_ = 0, exposed_then_ = 0;                     // 0 before the first step has ended
  std::optional<double> backward_began_, exposed_in_forward_{};  // in this step
  // These are of the window.
  ComputeSeconds computed_;
  double window_began_ = 0;
  std::int64_t steps_ = 0, steps_in_window_ = 0, sent_steps_ = 0, next_ = 0;
  std::optional<Group> group_;
  std::optional<SlowRanks> slow_;
  Buffer numbers_;
  std::optional<Pending> pending_;
};

}  // namespace dear::train
