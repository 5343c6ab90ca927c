#pragma once

#include "dear/base/trace/trace.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/metrics/memory_report.h"
#include "dear/train/metrics/step_listeners.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

class Trainer;

// What a training tells of itself. The methods of DataParallel and Watch of the same names.
class Reports {
 public:
  explicit Reports(Trainer& own) : own_(own) {}

  [[nodiscard]] Trace trace();
  [[nodiscard]] Workload profile();
  [[nodiscard]] Workload measured() const;
  [[nodiscard]] DataParallelStatistics statistics() const;
  [[nodiscard]] double exposed_seconds() const;  // of the statistics
  [[nodiscard]] metrics::StepSample sample() const;
  [[nodiscard]] MemoryReport memory() const;
  [[nodiscard]] double clock_now();  // seconds, or a mark: [Note: times of a device]

 private:
  Trainer& own_;
};

}  // namespace dear::train
