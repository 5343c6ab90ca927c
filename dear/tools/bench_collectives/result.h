#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/tools/bench_collectives/measured_operation.h"

namespace dear::bench_collectives {

// The times of one library at one operation and size.
struct Result {
  std::string backend;
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  int ranks = 0;
  std::int64_t bytes = 0;
  Spread seconds;  // of one operation, over the repetitions
  bool verified = false;
  bool copies = false;                     // Library::only_copies
  int ahead = 1;                           // see LibraryOptions
  std::vector<std::int64_t> sent_bytes{};  // of an all-to-all-v, by rank: what went to others, as counted
  bool touched = false;                    // vectors were written before each operation, and read after it
  // Where ranks computed meanwhile: the time of computation over that without collectives.
  std::optional<double> computation_slowdown{};
  // Where rank 0 came late: the part of a core that a waiting rank used, of each repetition the largest over
  // ranks, and of these the median. `seconds` are those of the late rank then.
  std::optional<double> waiting_share{};

  // The time that the chunk plans of a grid have for it; nothing where its links are not known.
  std::optional<double> planned_seconds{};

  [[nodiscard]] std::string label() const;           // the backend, and whether it computed meanwhile
  [[nodiscard]] double algorithm_bandwidth() const;  // bytes over seconds; 0 for a barrier
  // See bus_factor. A plain copy has its own bandwidth; of an all-to-all-v it is that of the rank that sent
  // most.
  [[nodiscard]] double bus_bandwidth() const;
};

// A JSON list with an object for each result: backend, operation, dtype, ranks, bytes,
// seconds {median, p10, p90}, busbw_bytes_per_second, verified; and what there is beside.
std::string results_json(const std::vector<Result>& results);

}  // namespace dear::bench_collectives
