#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear {

// Says what a rank did in a span. Timelines are coloured by it, and summaries count by it.
enum class Activity : std::uint8_t { forward, backward, update, codec, communication, wait, other };

// Says what one rank did on one lane from one time to another.
struct Span {
  int rank = 0;
  std::string lane;  // "compute", "update", "codec", "network"
  std::string name;  // "forward block.3", "reduce-scatter bucket 2", "wait for bucket 0"
  Activity activity = Activity::other;
  std::int64_t iteration = -1;  // from 0; -1 outside of every iteration
  std::int64_t step = -1;       // StepId in the schedule; -1 for a span that is no step
  double begin_seconds = 0;     // on one clock for all ranks
  double end_seconds = 0;
};

// Spans of all ranks of one run, real or simulated.
struct Trace {
  std::string title;    // "dear train, policy dear, 4 ranks"
  std::string network;  // "" for a real one, else how it was modelled: "modelled: 1gbit (...)"
  std::vector<Span> spans;
};

}  // namespace dear
