#include "dear/train/data_parallel/run_record.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"

namespace dear::train {
namespace {

double overlap(double begin, double end, const conductor::Conductor::Wait& wait) {
  return std::max(0.0, std::min(end, wait.end_seconds) - std::max(begin, wait.begin_seconds));
}

}  // namespace

void RunRecord::engine_ends(const Engine& engine, Keep keep) {
  if (keep == Keep::spans) {
    earlier_spans_ = without_parts(engine);
    for (Span& span : earlier_spans_) span.step = -1;  // of another schedule
    add_measurements(engine, earlier_measurements_);
  }
  const DataParallelStatistics now = statistics(&engine);
  earlier_ = {.iterations = commits(&engine),
              .exposed_seconds = now.exposed_seconds,
              .waits = now.waits,
              .communication_seconds = now.communication_seconds,
              .bytes = now.bytes};
  clock_.forget_spans();
}

void RunRecord::layers_end() {
  earlier_measurements_ = {};
  clock_.forget_layers();
}

void RunRecord::engine_replaced(const Engine& engine, const std::string& why, double begin_seconds) {
  earlier_spans_.push_back({.rank = rank_,
                            .lane = "compute",
                            .name = fmt::format("{}, {} buckets", why, engine.grouping().size()),
                            .activity = Activity::other,
                            .iteration = earlier_.iterations,
                            .step = -1,
                            .begin_seconds = begin_seconds,
                            .end_seconds = now_seconds()});
}

std::int64_t RunRecord::commits(const Engine* engine) const {
  return earlier_.iterations + (engine ? engine->conductor().iteration() : 0);
}

DataParallelStatistics RunRecord::statistics(const Engine* engine) const {
  if (!engine) return {};
  const conductor::Conductor& conductor = engine->conductor();
  const std::vector<std::int64_t> buckets = engine->model().bucket_bytes();
  const std::int64_t bytes = std::accumulate(buckets.begin(), buckets.end(), std::int64_t{0});
  return {.iterations = commits(engine) - given_up_,
          .exposed_seconds = exposed_seconds(engine),
          .waits = earlier_.waits + conductor.wait_count(),
          .parameter_bytes = bytes,
          .buckets = buckets.size(),
          .communication_seconds = earlier_.communication_seconds + conductor.communication_seconds(),
          .bytes = earlier_.bytes + engine->sent_bytes(),
          .padding_bytes = bytes - engine->workload().bytes(),
          .sparse_as_rows = sparse_.as_rows(),
          .sparse_made_dense = sparse_.made_dense()};
}

std::vector<Span> RunRecord::without_parts(const Engine& engine) const {
  const Schedule& schedule = engine.schedule();
  std::vector<Span> spans = earlier_spans_;
  const auto add = [&](const std::string& lane, const std::string& name, Activity activity,
                       std::int64_t iteration, std::int64_t step, const auto& times) {
    spans.push_back({.rank = rank_,
                     .lane = lane,
                     .name = name,
                     .activity = activity,
                     .iteration = iteration,
                     .step = step,
                     .begin_seconds = times.begin_seconds,
                     .end_seconds = times.end_seconds});
  };
  for (const auto& span : clock_.spans()) {
    const std::string& layer = engine.workload().layers[span.layer].name;
    if (span.backward) {
      add("compute", "backward " + layer, Activity::backward, span.iteration,
          schedule.backward_of(span.layer), span);
    } else {
      add("compute", "forward " + layer, Activity::forward, span.iteration, schedule.forward_of(span.layer),
          span);
    }
  }
  const conductor::Conductor::Record record = engine.conductor().record();
  for (const conductor::StepSpan& span : record.steps) {
    const Step& step = schedule.steps()[span.which.step];
    const Lane& lane = schedule.lanes()[step.lane];
    add(lane.name, name_of(step.work),
        lane.kind == LaneKind::network ? Activity::communication
        : lane.kind == LaneKind::codec ? Activity::codec
                                       : Activity::update,
        earlier_.iterations + span.which.iteration, span.which.step, span);
  }
  for (const conductor::Conductor::Wait& wait : record.waits)
    add("compute", "wait for " + wait.what.text(), Activity::wait, earlier_.iterations + wait.iteration, -1,
        wait);
  return spans;
}

std::vector<Span> RunRecord::spans(const Engine& engine) const {
  std::vector<Span> spans = without_parts(engine);
  for (const auto& [part, of_part] : parts_) {
    const std::vector<Span> more = of_part();
    spans.insert(spans.end(), more.begin(), more.end());
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.begin_seconds < b.begin_seconds; });
  return spans;
}

double RunRecord::exposed_seconds(const Engine* engine) const {
  return engine ? earlier_.exposed_seconds + engine->conductor().exposed_seconds() : 0;
}

void RunRecord::remove_part(const void* part) {
  const auto found = parts_.find(part);
  if (found == parts_.end()) return;
  const std::vector<Span> spans = found->second();
  earlier_spans_.insert(earlier_spans_.end(), spans.begin(), spans.end());
  parts_.erase(found);
}

std::int64_t RunRecord::bytes(const Engine* engine) const {
  std::size_t bytes =
      earlier_spans_.capacity() * sizeof(Span) + clock_.spans().size() * sizeof(clock_.spans()[0]);
  if (engine != nullptr) {
    const conductor::Conductor::Record record = engine->conductor().record();
    bytes += record.steps.size() * sizeof(record.steps[0]) + record.waits.size() * sizeof(record.waits[0]);
  }
  return static_cast<std::int64_t>(bytes);
}

void RunRecord::add_measurements(const Engine& engine, Measurements& all) const {
  const conductor::Conductor::Record record = engine.conductor().record();
  for (const auto& span : clock_.spans()) {
    double length = span.end_seconds - span.begin_seconds;
    for (const conductor::Conductor::Wait& wait : record.waits)
      length -= overlap(span.begin_seconds, span.end_seconds, wait);
    (span.backward ? all.backward : all.forward)[span.layer][span.iteration] += std::max(0.0, length);
  }
  for (const conductor::StepSpan& span : record.steps) {
    const auto* update = std::get_if<Update>(&engine.schedule().steps()[span.which.step].work);
    const std::int64_t iteration = earlier_.iterations + span.which.iteration;
    if (!update || iteration == 0) continue;
    all.updates[iteration] += span.end_seconds - span.begin_seconds;
    all.sharded = update->scope == UpdateScope::shard;
  }
}

Workload RunRecord::measured(const Engine& engine, int ranks) const {
  Workload workload = engine.workload();
  Measurements all = earlier_measurements_;
  add_measurements(engine, all);
  for (const auto& [layer, seconds] : autograd::share_of_pass(all.forward))
    workload.layers[layer].forward_seconds = seconds;
  for (const auto& [layer, seconds] : autograd::share_of_pass(all.backward))
    workload.layers[layer].backward_seconds = seconds;
  workload.update_seconds = autograd::median_of(all.updates) * (all.sharded ? ranks : 1);
  return workload;
}

}  // namespace dear::train
