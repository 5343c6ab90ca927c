#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dear::launch {

// How a job ended that was not told to.
struct JobFailure {
  int rank = 0;           // that failed first
  int signal = 0;         // that killed it; 0 for none
  std::int64_t step = 0;  // of the training, the furthest that any rank had come to; 0 where not known
  bool together = false;  // with the one before, from which the others have not gone on yet
  // The host of the rank, where there are several.
  int host = -1;
  std::string host_name{};
  int ranks_of_host = 0;
};

// Decides whether the ranks of a job that failed are started again, and how many of them. A job that fails
// again without having got further is not started for ever: where the same rank failed, it goes on with one
// rank less, if that is allowed; where another rank of the same host did, without that host; where a rank of
// another host did, or that did not help, the batch or the program is at fault.
class Restarts {
 public:
  // From `least` to `most` ranks, begun with `most`; `limit` restarts.
  Restarts(int least, int most, int limit) : least_(least), ranks_(most), limit_(limit) {}

  [[nodiscard]] int ranks() const { return ranks_; }      // of the next start
  [[nodiscard]] int restarts() const { return number_; }  // so far
  // None where the job is over; why() says why. A rank that SIGTERM ended was preempted: that counts against
  // nothing.
  [[nodiscard]] std::optional<int> after(const JobFailure& failure);
  [[nodiscard]] const std::string& why() const { return why_; }
  // The host that the job goes on without since the last after(); none for none.
  [[nodiscard]] std::optional<int> left_out_host() const { return left_out_host_; }
  // Whether that is the limit, and nothing speaks against going on with the ranks that live.
  [[nodiscard]] bool used_up() const { return used_up_; }

 private:
  int least_, ranks_, limit_;
  int number_ = 0, counted_ = 0;
  std::optional<JobFailure> last_;
  bool used_up_ = false;
  bool left_one_out_ = false;  // at the step of the last failure
  std::optional<int> left_out_host_;
  std::string why_;
};

}  // namespace dear::launch
