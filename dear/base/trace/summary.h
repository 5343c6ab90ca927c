#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"

namespace dear {

// Where the time of a run went. Times are seconds: the mean over ranks, and of these the median over
// iterations. Of more than three iterations the first and the last are left out.
struct TraceSummary {
  int ranks = 0;
  std::int64_t iterations = 0;
  // From the first span on the compute lane of one iteration to that of the next.
  double iteration_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double update_seconds = 0;
  // Work on the compute lane that is none of these, such as factors and inverses of K-FAC.
  double other_seconds = 0;
  double codec_seconds = 0;          // encoding and decoding of compressed gradients
  double communication_seconds = 0;  // time with at least one collective on the wire
  // Exposed communication: a rank computes nothing while it waits for the network. [Note: what is counted] in
  // the source says how it is measured.
  double exposed_seconds = 0;
  double hidden_fraction = 0;  // 1 - exposed / communication, at least 0; 0 without communication
  struct Slowest {
    std::string name;
    double total_seconds = 0;  // mean over ranks, per iteration
  };
  std::vector<Slowest> slowest_waits;  // at most 5
};

TraceSummary summarize(const Trace& trace);
std::string to_text(const TraceSummary& summary, const Trace& trace);  // a small table

}  // namespace dear
