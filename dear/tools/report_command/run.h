#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/json/json_field.h"
#include "dear/base/trace/trace.h"

// The runs that `dear report` takes: files of one run under one name.
namespace dear::report_command {

// Lines of a metrics file of one rank, in the order of the file.
using Metrics = std::vector<Json>;

struct Run {
  std::string name;
  std::vector<std::string> sources;  // as messages name them
  std::optional<Trace> trace{};      // of all ranks whose traces were given
  bool of_profiler = false;          // the trace is one of torch.profiler
  std::vector<Metrics> metrics{};    // one for each file
  std::optional<Json> results{};     // as --json of a command has them
};

class Runs {
 public:
  // Adds the content of a file to the run of this name. Traces and metrics of one run are merged where their
  // ranks differ. ConfigError that names the source: for what is empty, cut, or none of these; for two traces
  // or metrics of one rank, or two results, of one run.
  void add(const std::string& name, const std::string& source, std::string_view text);

  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }  // in the order of their first file

 private:
  struct Origin {
    std::string name;
    std::int64_t nanoseconds;  // of the trace's 0
  };
  void add_trace(Run& run, const std::string& source, std::string_view text);

  std::vector<Run> runs_;
  std::vector<Origin> origins_;  // of traces of torch.profiler
};

// Reads FILE or NAME=FILE for each word; the name of a file is that without folder and ending. ConfigError
// also for one that cannot be read.
Runs read_runs(const std::vector<std::string>& words);

}  // namespace dear::report_command
