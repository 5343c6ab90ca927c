#include "dear/tools/launch/restarts.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>

namespace dear::launch {

std::optional<int> Restarts::after(const JobFailure& failure) {
  const std::optional<JobFailure> before = std::exchange(last_, failure);
  const bool preempted = failure.signal == SIGTERM;
  if (!preempted && counted_ == limit_) {
    why_ = limit_ == 0 ? ""
                       : fmt::format("rank {} failed, and all {} restarts are used up", failure.rank, limit_);
    return std::nullopt;
  }
  const bool further = !before || failure.step > before->step;
  const bool again = !preempted && !further;
  if (again && failure.rank == before->rank && !left_one_out_ && ranks_ > least_) {
    left_one_out_ = true;
    --ranks_;
  } else if (again) {
    why_ = fmt::format(
        "the job failed {} at step {} as before, on rank {}{}: its batch, or the program, is at fault, and "
        "no restart "
        "helps",
        failure.step < before->step ? "again, no further than" : "again,", failure.step, failure.rank,
        failure.rank == before->rank ? "" : fmt::format(" and before that on rank {}", before->rank));
    return std::nullopt;
  }
  if (further) left_one_out_ = false;
  if (!preempted) ++counted_;
  ++number_;
  return ranks_;
}

}  // namespace dear::launch
