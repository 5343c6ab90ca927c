#include "dear/base/launch/restarts.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>

namespace dear::launch {

std::optional<int> Restarts::after(const JobFailure& failure) {
  const std::optional<JobFailure> before = std::exchange(last_, failure);
  const bool preempted = failure.signal == SIGTERM;
  const bool further = !before || failure.step > before->step;
  const bool again = !preempted && !further && !failure.together;
  const bool leaves_one_out = again && failure.rank == before->rank && !left_one_out_ && ranks_ > least_;
  const bool same_host =
      again && failure.rank != before->rank && failure.host > 0 && failure.host == before->host;
  const bool leaves_host_out = same_host && !left_one_out_ && ranks_ - failure.ranks_of_host >= least_;
  left_out_host_.reset();
  if (again && !leaves_one_out && !leaves_host_out) {
    why_ = fmt::format(
        "the job failed {} at step {} as before, on rank {}{}: its batch, or the program, {}is at fault, and "
        "no restart helps",
        failure.step < before->step ? "again, no further than" : "again,", failure.step, failure.rank,
        failure.rank == before->rank ? "" : fmt::format(" and before that on rank {}", before->rank),
        same_host ? fmt::format("or the host {} of both, ", failure.host_name) : "");
    return std::nullopt;
  }
  used_up_ = !preempted && counted_ == limit_;
  if (used_up_) {
    why_ = limit_ == 0 ? ""
                       : fmt::format("rank {} failed, and all {} restarts are used up", failure.rank, limit_);
    return std::nullopt;
  }
  if (leaves_one_out) {
    left_one_out_ = true;
    --ranks_;
  } else if (leaves_host_out) {
    left_one_out_ = true;
    ranks_ -= failure.ranks_of_host;
    left_out_host_ = failure.host;
  }
  if (further) left_one_out_ = false;
  if (!preempted) ++counted_;
  ++number_;
  return ranks_;
}

}  // namespace dear::launch
