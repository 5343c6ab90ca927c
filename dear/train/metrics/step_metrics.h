#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dear {

// The smallest, mean and largest value of one number over all ranks.
struct OverRanks {
  double min = 0, mean = 0, max = 0;
};

// StepMetrics describes one training step as this rank saw it, or the mean of the steps since the last
// report. A step lasts from the end of one step() to the end of the next, and what happened in that time is
// counted: forward and backward of the iteration, the reductions of its gradients, and, where they hide under
// the forward pass, the all-gathers of the iteration before.
struct StepMetrics {
  int rank = 0, ranks = 1;
  std::int64_t iteration = 0;  // of the last step described: from 0, steps that were given up included
  std::int64_t steps = 1;      // described: numbers below are of one step, their mean
  std::int64_t given_up = 0;   // of those steps: by discard_step(), or because a gradient was not finite

  double seconds = 0;                // of a step
  double exposed_seconds = 0;        // exposed communication: the program waited for it
  double communication_seconds = 0;  // in which a collective of the schedule ran, all ranks having come to it
  double overlap = 1;    // share of communication_seconds that was hidden, from 0 to 1; 1 without any
  double bytes = 0;      // sent by this rank, where collectives send no more than they must; as many received
  double bandwidth = 0;  // bytes / communication_seconds; 0 without any

  std::vector<std::int64_t> buckets{};  // bytes of each, padding included; empty where one rank trains alone
  std::string tuning = "off";           // of buckets: "off", "measuring", "trying" or "settled"
  std::string candidate{};              // the buckets in force, where they are tuned: "1MiB", "planned"
  double loss_scale = 1;                // of the last step that was given one
  std::optional<double> gradient_norm{};  // that the last clip_gradients_by_norm() of these steps returned
  std::string nonfinite{};                // what check_gradients last found in these steps; "" for nothing
  std::int64_t resident_bytes = 0;        // memory of this process that is in use

  // By name of a number above, with Report::reduced: seconds, exposed_seconds, communication_seconds,
  // overlap, bytes, bandwidth, resident_bytes.
  std::map<std::string, OverRanks> over_ranks{};
};

// Who is told: each rank its own metrics; rank 0 its own; rank 0 its own with those of all ranks reduced.
enum class Report : std::uint8_t { each_rank, rank_0, reduced };

struct StepReports {
  std::int64_t every = 1;             // steps from one report to the next
  Report report = Report::each_rank;  // the same on every rank
};

using StepCallback = std::function<void(const StepMetrics&)>;

namespace metrics {

// One line of JSON, without the end of the line; null for a number that is not finite. `lost_lines`: of
// earlier reports that could not be written, named where there are any.
std::string to_json_line(const StepMetrics& metrics, std::int64_t lost_lines = 0);

}  // namespace metrics
}  // namespace dear
