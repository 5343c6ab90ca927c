#pragma once

#include <string>
#include <vector>

#include "dear/cli/bench/contest.h"

namespace dear::cli::bench {

// What a reader needs to judge times: how busy the machine was, and what ran.
struct Circumstances {
  int cores = 1;
  double load_before = 0;  // of the last minute
  double load_after = 0;
  std::string program;  // "dear 0.1.0"
};

std::string heading(const ContestSettings& settings);
// One line a result, those of one size together; the last column holds how many times as long as the first
// contestant each took.
std::string result_table(const std::vector<Result>& results);
std::string circumstances_text(const ContestSettings& settings, const ContestOutcome& outcome,
                               const Circumstances& circumstances);
// Everything that went wrong; "" when nothing did. `who` stands before each sentence.
std::string failures_text(const std::vector<Failure>& failures, const std::string& who);

// A JSON list with an object for each result: backend, operation, dtype, ranks, bytes,
// seconds {median, p10, p90}, busbw_bytes_per_second, verified.
std::string results_json(const std::vector<Result>& results);

double load_of_last_minute();  // 0 where the system does not say

}  // namespace dear::cli::bench
