#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/trace/intervals.h"
#include "dear/base/trace/trace.h"

// Where the time of each rank went, and how much of each collective was hidden. Times are seconds. They are
// means over the iterations that a summary counts (base/trace/summary.h), so that parts add up, where a
// summary has medians.
namespace dear {

struct RankBreakdown {
  int rank = 0;
  std::int64_t iterations = 0;  // counted, of this rank
  // The sum of the four that follow.
  double iteration_seconds = 0;
  double computation_seconds = 0;    // work on the compute lane while nothing travels
  double hidden_seconds = 0;         // work on the compute lane while a collective is on the wire
  double exposed_seconds = 0;        // exposed communication
  double idle_seconds = 0;           // neither work, nor communication, nor a wait
  double communication_seconds = 0;  // at least one collective is on the wire
  trace::Intervals exposed{};        // in all iterations
};

// Spans of communication with one name: mean over ranks and iterations. Where several are on the wire at
// once, exposed time counts for each.
struct CollectiveBreakdown {
  std::string name;
  std::int64_t bucket = -1;  // -1 for a name without " bucket N"
  double seconds = 0;
  double exposed_seconds = 0;  // of these, without work on the compute lane
};

// Spans of one name and activity, likewise; nested and parallel ones count each.
struct NamedTime {
  std::string name;
  Activity activity = Activity::other;
  double count = 0;  // an iteration of a rank
  double seconds = 0;
};

// A rank that computes longer than the median of ranks.
struct Straggler {
  int rank = 0;
  double slowdown = 1;  // its time of work over the median
};

struct TraceBreakdown {
  std::vector<RankBreakdown> ranks;              // ascending
  std::vector<CollectiveBreakdown> collectives;  // by bucket, then by name
  std::vector<NamedTime> names;                  // the longest first
  std::vector<Straggler> stragglers;             // slowdown of at least kStraggles, the slowest first
};
inline constexpr double kStraggles = 1.1;

TraceBreakdown break_down(const Trace& trace);

}  // namespace dear
