#pragma once

#include <string>
#include <vector>

#include "dear/tools/bench_collectives/benchmark.h"

namespace dear::cli {

// The circumstances of a benchmark, by which a reader judges its times: how busy the machine was, and what
// ran.
struct Circumstances {
  int cores = 1;
  double load_before = 0;  // of the last minute
  double load_after = 0;
  std::string program;  // "dear 0.2.0"
};

std::string heading(const bench_collectives::BenchmarkSettings& settings);
// A line for each result, by size. The last column is the median over that of the first library at this size.
std::string result_table(const std::vector<bench_collectives::Result>& results);
std::string circumstances_text(const bench_collectives::BenchmarkSettings& settings,
                               const bench_collectives::BenchmarkOutcome& outcome,
                               const Circumstances& circumstances);
// A sentence for each failure, behind `who`, and the output of its ranks.
std::string failures_text(const std::vector<bench_collectives::Failure>& failures, const std::string& who);

double load_of_last_minute();  // of this machine; 0 where the system does not say

}  // namespace dear::cli
