#pragma once

#include <optional>
#include <string>

#include "dear/base/launch/pipe.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// The record of why a job failed: the first rank that says so, why, and when. Ranks write a line
// "RANK CAUSE" into a pipe, which they find by its path in the environment (DEAR_CAUSES), before they tell
// their peers; what peers make of it comes later and counts for nothing.
class Causes {
 public:
  Causes();  // TransportError where the system has no pipe

  [[nodiscard]] std::string path() const;  // for the environment of the ranks
  [[nodiscard]] int fd() const { return pipe_.read.get(); }
  void read();

  struct First {
    int rank = 0;
    std::string why;     // one line that can be printed
    double seconds = 0;  // since this object was made
  };
  [[nodiscard]] const std::optional<First>& first() const { return first_; }
  // A cause that a rank on another host gave; of the first alone.
  void note(int rank, const std::string& why);
  void forget() { first_.reset(); }  // of a failure that did not end the job

 private:
  Pipe pipe_;
  SteadyTime begin_ = SteadyClock::now();
  std::string text_;
  std::optional<First> first_;
};

}  // namespace dear::launch
