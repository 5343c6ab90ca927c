#include "dear/schedule/policies/one_copy.h"

#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/builder.h"
#include "dear/schedule/policies/refusal.h"

namespace dear {
namespace {

const Communicate* communicates(const Schedule& schedule, StepId step) {
  return std::get_if<Communicate>(&schedule.steps()[step].work);
}

// The last reduction of an iteration, in the order in which collectives are issued.
std::optional<StepId> last_reduction(const Schedule& schedule) {
  std::optional<StepId> last;
  for (const StepId step : schedule.steps_on(LaneKind::network)) {
    const Communicate* work = communicates(schedule, step);
    if (work != nullptr && work->collective == Collective::reduce_scatter) last = step;
  }
  return last;
}

}  // namespace

void require_one_copy_policy(const Policy& policy) {
  if (policy.residence.optimizer_sharded) return;
  std::vector<std::string_view> able;
  for (const Policy& other : training_policies())
    if (other.residence.optimizer_sharded) able.push_back(other.name);
  throw ConfigError(
      fmt::format("policy {} updates whole buckets on every rank, so ranks cannot share one copy of the "
                  "parameters: train with {}, or without one copy",
                  policy.name, fmt::join(able, " or ")));
}

Schedule with_one_copy(const Schedule& schedule, const Workload& workload, const Grouping& grouping) {
  ScheduleBuilder builder(workload, grouping, schedule.policy());
  for (const Lane& lane : schedule.lanes()) builder.lane(lane.name, lane.kind);
  for (const Step& step : schedule.steps()) builder.add(step.work, step.lane);
  for (const Edge& edge : schedule.edges()) builder.edge(edge.from, edge.to, edge.back);

  const std::optional<StepId> last = last_reduction(schedule);
  bool waits = false;  // for the commits of all ranks
  for (BucketId bucket = 0; bucket < schedule.bucket_count(); ++bucket) {
    for (const StepId step : schedule.publishers_of(bucket)) {
      const Communicate* work = communicates(schedule, step);
      if (work == nullptr || work->payload != Payload::parameters || !last)
        schedule::refuse(schedule,
                         "{} publishes what every rank has updated: ranks cannot share one copy of that",
                         schedule::describe(schedule, step));
    }
    for (const StepId step : schedule.updates_of(bucket)) {
      if (std::get<Update>(schedule.steps()[step].work).options == OptionsOf::last_commit) continue;
      builder.edge(*last, step);
      waits = true;
    }
  }
  if (waits) builder.edge(schedule.commit(), *last);
  return std::move(builder).build();
}

}  // namespace dear
