#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/predict/plan/plan.h"

namespace dear::plan {

// Circumstances hold the facts that sentences of a verdict need beside the answer itself.
struct Circumstances {
  std::int64_t memory_bytes = 0;  // that a rank has; 0: not known
  std::int64_t buffers = 0;       // of the workload, see there
  double buffers_seconds = 0;     // that a broadcast of all of them takes
  std::optional<Gain>
      dear_gain;  // of the fastest of DeAR's policies over wfbp, where both are among the rows
  // Where nothing that runs here fits: the row that needs least of those that run, and of all policies there
  // are; and the former with activation checkpointing.
  std::optional<Row> least_that_runs, least_of_all, checkpointed;
};

// Sentences on an answer whose rows, best, gain and compressions are known: what to use and why, what is
// faster and why it is passed over, whether DeAR is the answer, which compression pays. They agree with each
// other, and recommend nothing that does not fit.
std::vector<std::string> verdict_on(const Answer& answer, const Circumstances& circumstances);

bool is_of_dear(const Policy& policy);
// The fastest of DeAR's policies, of those that fit where any does; null where there is none.
const Row* fastest_of_dear(const Answer& answer);
const Row* find_row(const Answer& answer, std::string_view policy);  // null where it is not there

}  // namespace dear::plan
