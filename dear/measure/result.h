#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/dtype.h"
#include "dear/measure/measured_operation.h"
#include "dear/measure/statistics.h"

namespace dear::measure {

// One contestant at one operation and size.
struct Result {
  std::string backend;
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  int ranks = 0;
  std::int64_t bytes = 0;
  Quantiles seconds;  // of one operation, over the repetitions
  bool verified = false;
  bool copies = false;   // each rank for itself
  int ahead = 1;         // so many issued before the first was waited for
  bool touched = false;  // with writing before and reading after
  // Where the ranks computed meanwhile: how much longer computation took than without collectives.
  std::optional<double> computation_slowdown{};
  // Where rank 0 came late: the part of a core that a waiting rank used from its begin to its end, of each
  // repetition the rank's that used most, and of those the median. `seconds` are those of the late rank then.
  std::optional<double> waiting_share{};

  [[nodiscard]] std::string label() const;           // the backend, and whether it computed meanwhile
  [[nodiscard]] double algorithm_bandwidth() const;  // bytes over seconds; 0 for a barrier
  // See bus_factor. A plain copy has its own bandwidth.
  [[nodiscard]] double bus_bandwidth() const;
};

// A JSON list with an object for each result: backend, operation, dtype, ranks, bytes,
// seconds {median, p10, p90}, busbw_bytes_per_second, verified.
std::string results_json(const std::vector<Result>& results);

}  // namespace dear::measure
