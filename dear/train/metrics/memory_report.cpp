#include "dear/train/metrics/memory_report.h"

namespace dear {

std::int64_t MemoryReport::total() const {
  return parameters + gradients + padding + optimizer_state + masters + compression + replaced + frozen +
         staging + trace;
}

std::vector<std::pair<std::string, std::int64_t>> MemoryReport::items() const {
  return {{"parameters", parameters},
          {"gradients", gradients},
          {"padding", padding},
          {"optimizer_state", optimizer_state},
          {"masters", masters},
          {"compression", compression},
          {"replaced", replaced},
          {"frozen", frozen},
          {"staging", staging},
          {"trace", trace},
          {"total", total()},
          {"saved_by_one_copy", saved_by_one_copy},
          {"change_of_buckets", change_of_buckets}};
}

}  // namespace dear
