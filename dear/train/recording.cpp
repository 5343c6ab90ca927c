// What a recorded run looked like: DataParallel::trace() and profile().

#include <algorithm>
#include <map>
#include <variant>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/train/data_parallel_impl.h"

namespace dear {
namespace {

double overlap(double begin, double end, const Conductor::Wait& wait) {
  return std::max(0.0, std::min(end, wait.end_seconds) - std::max(begin, wait.begin_seconds));
}

void require_recording(bool record_trace) {
  if (!record_trace) throw ConfigError("nothing was recorded: set DataParallelOptions::record_trace");
}

}  // namespace

Trace DataParallel::Impl::trace() {
  require_recording(options_.record_trace);
  synchronize();
  return recorded();
}

Trace DataParallel::Impl::recorded() {
  const Schedule& schedule = engine().schedule();
  Trace trace{.title = fmt::format("policy {}, {} ranks", schedule.policy(), group_.size()),
              .network = group_.modelled_network().empty() ? "" : "modelled: " + group_.modelled_network(),
              .spans = earlier_spans_};
  const int rank = group_.rank();
  for (const auto& span : clock_.spans()) {
    const StepId step = span.backward ? schedule.backward_of(span.layer) : schedule.forward_of(span.layer);
    trace.spans.push_back({.rank = rank,
                           .lane = "compute",
                           .name = fmt::format("{} {}", span.backward ? "backward" : "forward",
                                               engine_->workload().layers[span.layer].name),
                           .activity = span.backward ? Activity::backward : Activity::forward,
                           .iteration = span.iteration,
                           .step = step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  const Conductor::Record record = engine_->conductor().record();
  for (const StepSpan& span : record.steps) {
    const Step& step = schedule.steps()[span.which.step];
    const bool network = std::holds_alternative<Communicate>(step.work);
    trace.spans.push_back({.rank = rank,
                           .lane = schedule.lanes()[step.lane].name,
                           .name = name_of(step.work),
                           .activity = network ? Activity::communication : Activity::update,
                           .iteration = earlier_.iterations + span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  for (const Conductor::Wait& wait : record.waits) {
    trace.spans.push_back({.rank = rank,
                           .lane = "compute",
                           .name = "wait for " + wait.what,
                           .activity = Activity::wait,
                           .iteration = earlier_.iterations + wait.iteration,
                           .step = -1,
                           .begin_seconds = wait.begin_seconds,
                           .end_seconds = wait.end_seconds});
  }
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const Span& a, const Span& b) { return a.begin_seconds < b.begin_seconds; });
  return trace;
}

Workload DataParallel::Impl::profile() {
  require_recording(options_.record_trace);
  synchronize();
  return measured();
}

void DataParallel::Impl::add_measurements(Measurements& all) const {
  const Conductor::Record record = engine_->conductor().record();
  for (const auto& span : clock_.spans()) {
    double length = span.end_seconds - span.begin_seconds;
    for (const Conductor::Wait& wait : record.waits)
      length -= overlap(span.begin_seconds, span.end_seconds, wait);
    (span.backward ? all.backward : all.forward)[span.layer][span.iteration] += std::max(0.0, length);
  }
  for (const StepSpan& span : record.steps) {
    const auto* update = std::get_if<Update>(&engine_->schedule().steps()[span.which.step].work);
    const std::int64_t iteration = earlier_.iterations + span.which.iteration;
    if (!update || iteration == 0) continue;
    all.updates[iteration] += span.end_seconds - span.begin_seconds;
    all.sharded = update->scope == UpdateScope::shard;
  }
}

Workload DataParallel::Impl::measured() {
  Workload workload = engine().workload();
  Measurements all = earlier_measurements_;
  add_measurements(all);
  for (const auto& [layer, seconds] : train::share_of_pass(all.forward))
    workload.layers[layer].forward_seconds = seconds;
  for (const auto& [layer, seconds] : train::share_of_pass(all.backward))
    workload.layers[layer].backward_seconds = seconds;
  workload.update_seconds = train::median_of(all.updates) * (all.sharded ? group_.size() : 1);
  for (const torch::Tensor& buffer : scanned_.buffers)
    workload.buffer_bytes += static_cast<std::int64_t>(buffer.nbytes());
  return workload;
}

}  // namespace dear
