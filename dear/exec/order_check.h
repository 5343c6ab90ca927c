#pragma once

#include <string>
#include <vector>

#include "dear/exec/drive.h"
#include "dear/schedule/schedule.h"
#include "dear/trace/trace.h"

namespace dear::exec {

// Does this run respect its schedule? Every violation as a sentence ("update of shard, bucket 1 of iteration
// 3 began 12 us before reduce-scatter ... ended"), at most `limit` of them; none when it does.
// `tolerance_seconds` forgives clock reads. Spans of steps the run does not have (a live compute lane that
// was not traced) are not missed.
struct OrderCheck {
  double tolerance_seconds = 0;
  FreeLanes free = {};
  std::size_t limit = 10;
};
std::vector<std::string> order_violations(const Schedule& schedule, const std::vector<StepSpan>& spans,
                                          const OrderCheck& options);
// The same for the spans of each rank in a trace that carry a step.
std::vector<std::string> order_violations(const Schedule& schedule, const Trace& trace,
                                          const OrderCheck& options);

}  // namespace dear::exec
