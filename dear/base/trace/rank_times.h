#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "dear/base/trace/intervals.h"
#include "dear/base/trace/trace.h"

// The time of each rank in a trace, by what the rank did. Summaries and breakdowns count by these sets.
namespace dear::trace {

// [Note: what is counted] For each rank, on the rank's own spans:
// - The window of an iteration begins with the first work of that iteration on the lane "compute", and
//   ends where the window of the next iteration begins. The last window ends with the rank's last span.
//   Everything below is measured in windows, whichever iteration a span belongs to: an all-gather under
//   the next forward counts there.
// - Work on the compute lane is every span that is neither a wait nor communication, without the waits on
//   that lane: a live forward span contains the waits for its parameters, in which nothing is computed.
// - Communication is the time in which at least one communication span runs, on any lane.
// - Exposed communication is the time without work on the compute lane in which communication runs or the
//   compute lane waits. A live trace shows it as wait spans, a simulated one as gaps under which the
//   network works. A wait counts even if this rank sends and receives nothing: then it waits for a slower
//   rank. An idle gap with neither is not exposed.
// - An update on a lane of its own is no work of the compute lane, because it may run while that lane
//   waits.

bool on_compute_lane(const Span& span);
bool is_work(const Span& span);  // of the compute lane
bool is_wait(const Span& span);  // likewise

// The sets of instants of one rank that [Note: what is counted] defines. The trace outlives it.
struct RankTimes {
  int rank = 0;
  std::vector<const Span*> spans;
  std::map<std::int64_t, Interval> windows;  // by iteration
  Intervals forward, backward, update, other, codec, communication, waits, work, exposed;

  explicit RankTimes(std::vector<const Span*> of_rank);  // at least one span
};

std::vector<RankTimes> ranks_of(const Trace& trace);  // ascending

// Iterations that some rank has a window of, ascending.
std::vector<std::int64_t> all_iterations(const std::vector<RankTimes>& ranks);
// These without the first and the last, which start and end cold, where more than three are there.
std::vector<std::int64_t> counted_iterations(const std::vector<RankTimes>& ranks);

}  // namespace dear::trace
