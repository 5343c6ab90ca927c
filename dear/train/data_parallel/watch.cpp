#include "dear/train/data_parallel/watch.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/metrics/metrics_file.h"

namespace dear {

Watch::Watch(Group group, Source source)
    : group_(group),
      source_(std::move(source)),
      hooks_(group),
      listeners_(std::move(group), source_.sample) {}

MemoryReport Watch::memory() const {
  source_.settle("memory");
  return source_.memory();
}

RemovableHandle Watch::register_bucket_hook(BucketHook hook, HookAt at) {
  return hooks_.add(std::move(hook), at);
}

RemovableHandle Watch::on_step(StepCallback callback, const StepReports& reports) {
  if (reports.report == Report::reduced) source_.settle("on_step");
  return listeners_.add(std::move(callback), reports);
}

RemovableHandle Watch::write_metrics(const std::string& path, const StepReports& reports) {
  source_.settle("write_metrics");
  std::shared_ptr<metrics::MetricsFile> file;
  agreement::check_together(group_, [&] {
    const bool each = reports.report == Report::each_rank;
    const std::string mine = metrics::path_of_rank(path, group_.rank());
    if (each && mine == path && group_.size() > 1)
      throw ConfigError(
          fmt::format("rank {}: every rank would write its metrics to '{}': put {{rank}} into the name, or "
                      "let rank 0 alone report",
                      group_.rank(), path));
    if (each || group_.rank() == 0) file = std::make_shared<metrics::MetricsFile>(mine);
  });
  return listeners_.add([file](const StepMetrics& metrics) { file->write(metrics); }, reports);
}

}  // namespace dear
