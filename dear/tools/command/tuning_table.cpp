#include "dear/tools/command/tuning_table.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/table.h"

namespace dear::cli {

std::string table_of(const train_command::TuningReport& report) {
  Table table({"trial", "bucket size", "buckets", "iteration", "over the best"}, {.left_columns = 2});
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < report.trials.size(); ++i) {
    const tune::Observation& trial = report.trials[i];
    best = std::min(best, trial.seconds);
    table.add({std::to_string(i + 1), report.sizes.candidates[trial.candidate].name,
               std::to_string(report.sizes.groupings[trial.candidate].size()), format_seconds(trial.seconds),
               fmt::format("{:+.1f} %", 100 * (trial.seconds / best - 1))});
  }
  return table.to_string();
}

}  // namespace dear::cli
