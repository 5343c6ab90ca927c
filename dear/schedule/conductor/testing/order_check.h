#pragma once

#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/policies/schedule.h"

namespace dear::conductor {

// Where a run does not respect its schedule: each violation as a sentence ("update of shard, bucket 1 of
// iteration 3 began 12 us before reduce-scatter ... ended"), at most `limit` of them. Two times that differ
// by no more than `tolerance_seconds` are in order. Steps without a span, such as those of a compute lane
// that was not traced, are left out.
struct OrderCheck {
  double tolerance_seconds = 0;
  FreeLanes free = {};
  std::size_t limit = 10;
};
std::vector<std::string> order_violations(const Schedule& schedule, const std::vector<StepSpan>& spans,
                                          const OrderCheck& options);
// Checks the spans of a trace that are steps of the schedule, rank by rank.
std::vector<std::string> order_violations(const Schedule& schedule, const Trace& trace,
                                          const OrderCheck& options);

}  // namespace dear::conductor
