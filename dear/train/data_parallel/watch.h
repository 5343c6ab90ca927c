#pragma once

#include <functional>
#include <string>

#include "dear/comm/group/group.h"
#include "dear/train/metrics/bucket_hooks.h"
#include "dear/train/metrics/callbacks.h"
#include "dear/train/metrics/memory_report.h"
#include "dear/train/metrics/step_listeners.h"
#include "dear/train/metrics/step_metrics.h"

namespace dear {

// Watch registers callbacks on one DataParallel: DataParallel::watch(). While nothing is registered nothing
// is measured for it, and no clock is read. Callbacks stay through regroup() and tuning, until their handle
// removes them.
class Watch {
 public:
  // See BucketHook. At any time; a bucket whose hooks have run in this iteration is not shown to it.
  RemovableHandle register_bucket_hook(BucketHook hook, HookAt at = HookAt::before_reduction);

  // Calls the callback with metrics at the end of every `reports.every`-th step(), on the program's thread,
  // when the step has been taken, or given up by it. It may call this DataParallel, but not step(). What it
  // throws leaves step(), and the training can go on. A step given up by discard_step() is reported by the
  // next step(). With Report::reduced every rank registers, between a step() and the next backward, and a
  // report is one small collective.
  RemovableHandle on_step(StepCallback callback, const StepReports& reports = {});

  // Does as on_step(), with the metrics as lines of JSON appended to a file: one line a report, written
  // whole. A line that cannot be written (the disk is full) is lost, and counted in "lost_lines" of the next.
  // With Report::each_rank the path has "{rank}", in whose place each rank writes its number. Every rank
  // calls it, between a step() and the next backward; ConfigError on all of them when one cannot open its
  // file.
  RemovableHandle write_metrics(const std::string& path,
                                const StepReports& reports = {.report = Report::rank_0});

  // What this rank holds in memory, by kind. Between a step() and the next backward; waits as
  // DataParallel::wait() does.
  [[nodiscard]] MemoryReport memory() const;

  // A DataParallel gives these.
  struct Source {
    metrics::StepListeners::Sampler sample;
    std::function<MemoryReport()> memory;
    std::function<void(const char* call)> settle;  // returns when nothing is under way; refuses a call
                                                   // between backward and step()
  };
  Watch(Group group, Source source);
  [[nodiscard]] metrics::BucketHooks& hooks() { return hooks_; }
  [[nodiscard]] const metrics::BucketHooks& hooks() const { return hooks_; }
  [[nodiscard]] metrics::StepListeners& listeners() { return listeners_; }

 private:
  Group group_;
  Source source_;
  metrics::BucketHooks hooks_;
  metrics::StepListeners listeners_;
};

}  // namespace dear
