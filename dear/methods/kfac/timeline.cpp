#include "dear/methods/kfac/timeline.h"

#include <fmt/format.h>

namespace dear::methods::kfac {
namespace {

Activity activity_of(const Work& work) {
  if (work.communicates()) return Activity::communication;
  if (work.kind == WorkKind::forward) return Activity::forward;
  if (work.kind == WorkKind::backward) return Activity::backward;
  const bool updates = work.kind == WorkKind::precondition || work.kind == WorkKind::update;
  return updates ? Activity::update : Activity::other;
}

}  // namespace

std::string describe(const Work& work, const Job& job, const Plan& plan) {
  const auto layer = [&](std::size_t which) { return job.workload.layers[which].name; };
  const auto factor = [&](FactorId which) {
    return fmt::format("{} of {}", name_of(plan.factors[which].side), layer(plan.factors[which].layer));
  };
  switch (work.kind) {
    case WorkKind::forward:
      return "forward " + layer(work.index);
    case WorkKind::backward:
      return "backward " + layer(work.index);
    case WorkKind::compute_factor:
      return "factor " + factor(work.index);
    case WorkKind::invert:
      return "inverse of " + factor(work.index);
    case WorkKind::broadcast:
      return "broadcast of the inverse of " + factor(work.index);
    case WorkKind::precondition:
      return "precondition " + layer(work.index);
    case WorkKind::reduce_factors: {
      const Plan::Group& group = plan.groups[work.index];
      return fmt::format("{} factors, from {} to {}", group.owner ? "reduce" : "all-reduce",
                         factor(group.factors.front()), factor(group.factors.back()));
    }
    case WorkKind::commit:
    case WorkKind::reduce_gradients:
    case WorkKind::update:
      break;
  }
  return name_of(work);
}

Trace to_trace(const Job& job, const Plan& plan, const Iteration& iteration,
               const std::vector<conductor::StepSpan>& spans, const std::string& network, int rank) {
  Trace trace{.title = fmt::format("{}, policy {}", job.workload.name, plan.strategy),
              .network = network,
              .spans = {}};
  for (const conductor::StepSpan& span : spans) {
    if (span.end_seconds <= span.begin_seconds) continue;
    const Work& work = iteration.work[span.which.step];
    trace.spans.push_back({.rank = rank,
                           .lane = work.communicates() ? "network" : "compute",
                           .name = describe(work, job, plan),
                           .activity = activity_of(work),
                           .iteration = span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return trace;
}

}  // namespace dear::methods::kfac
