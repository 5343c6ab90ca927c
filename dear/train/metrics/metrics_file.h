#pragma once

#include <cstdint>
#include <string>

#include "dear/base/os/file_descriptor.h"
#include "dear/train/metrics/step_metrics.h"

namespace dear::metrics {

// A file of metrics, one line of JSON each, in the form of to_json_line(). A line is written whole, with one
// call to the system, or not at all: whoever reads the file meanwhile, or after this process died, finds
// whole lines. One that cannot be written (the disk is full) is lost, and counted in the next one.
class MetricsFile {
 public:
  // Appends to a file that is there. ConfigError that names the file when it cannot be opened.
  explicit MetricsFile(const std::string& path);
  void write(const StepMetrics& metrics);

 private:
  os::FileDescriptor file_;
  std::int64_t lost_ = 0;
};

// The path with the rank in place of "{rank}".
std::string path_of_rank(const std::string& path, int rank);

}  // namespace dear::metrics
