#include "dear/schedule/check.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/schedule/precedence.h"

namespace dear {
namespace {

template <typename... Args>
[[noreturn]] void refuse(const Schedule& schedule, fmt::format_string<Args...> format, Args&&... args) {
  throw ScheduleError(fmt::format("schedule of policy {}: {}", schedule.policy(),
                                  fmt::format(format, std::forward<Args>(args)...)));
}

std::string describe(const Schedule& schedule, StepId step) {
  return fmt::format("step {} ({})", step, name_of(schedule.steps()[step].work));
}

std::string_view name_of(LaneKind kind) {
  switch (kind) {
    case LaneKind::compute:
      return "compute";
    case LaneKind::update:
      return "update";
    case LaneKind::network:
      break;
  }
  return "network";
}

bool may_stand_on(const Work& work, LaneKind kind) {
  if (std::holds_alternative<Communicate>(work)) return kind == LaneKind::network;
  if (std::holds_alternative<Update>(work)) return kind != LaneKind::network;
  return kind == LaneKind::compute;
}

// The steps that concern one bucket, by kind.
struct BucketSteps {
  std::vector<StepId> reductions, gradient_gathers, parameter_gathers, updates;
};

}  // namespace

ScheduleCheck::ScheduleCheck(const Schedule& schedule, const Workload& workload, const Grouping& grouping)
    : schedule_(schedule), workload_(workload), grouping_(grouping) {}

void ScheduleCheck::structure() const {
  const auto compute_lanes = std::count_if(schedule_.lanes().begin(), schedule_.lanes().end(),
                                           [](const Lane& lane) { return lane.kind == LaneKind::compute; });
  if (compute_lanes != 1)
    refuse(schedule_, "{} compute lanes, but a rank runs one program: give it exactly one", compute_lanes);

  const std::vector<Step>& steps = schedule_.steps();
  for (StepId step = 0; step < steps.size(); ++step) {
    const Work& work = steps[step].work;
    const auto refuse_unknown = [&](const char* kind, std::uint32_t id, std::size_t count) {
      if (id >= count)
        refuse(schedule_, "{} concerns {} {}, but there are {} of them", describe(schedule_, step), kind, id,
               count);
    };
    if (const auto* forward = std::get_if<Forward>(&work))
      refuse_unknown("layer", forward->layer, workload_.layers.size());
    if (const auto* backward = std::get_if<Backward>(&work))
      refuse_unknown("layer", backward->layer, workload_.layers.size());
    if (const auto* update = std::get_if<Update>(&work))
      refuse_unknown("bucket", update->bucket, grouping_.size());
    if (const auto* communicate = std::get_if<Communicate>(&work)) {
      refuse_unknown("bucket", communicate->bucket, grouping_.size());
      if (communicate->payload == Payload::parameters && communicate->op != CollectiveOp::all_gather)
        refuse(schedule_, "{} would add up parameters: parameters are only gathered",
               describe(schedule_, step));
    }
    const Lane& lane = schedule_.lanes()[steps[step].lane];
    if (!may_stand_on(work, lane.kind))
      refuse(schedule_, "{} cannot stand on the {} lane \"{}\": put it on a lane of its own kind",
             describe(schedule_, step), name_of(lane.kind), lane.name);
  }

  for (const Edge& edge : schedule_.edges()) {
    if (std::max(edge.from, edge.to) >= steps.size())
      refuse(schedule_, "the edge from step {} to step {} names a step that does not exist: there are {}",
             edge.from, edge.to, steps.size());
    if (edge.from == edge.to && edge.back == 0)
      refuse(schedule_, "{} waits for itself: remove the edge", describe(schedule_, edge.to));
  }
  const std::vector<StepId> cycle =
      Precedence(steps.size(), edges_with_lanes(schedule_)).cycle_within_iteration();
  if (!cycle.empty()) {
    std::string names;
    for (const StepId step : cycle) names += describe(schedule_, step) + " -> ";
    refuse(schedule_,
           "no step of the cycle {}{} could ever start: turn one of its edges round or let it cross an "
           "iteration",
           names, describe(schedule_, cycle.front()));
  }
}

ScheduleCheck::Program ScheduleCheck::program() const {
  std::vector<std::vector<StepId>> forwards(workload_.layers.size()), backwards(workload_.layers.size());
  std::vector<StepId> commits;
  for (StepId step = 0; step < schedule_.steps().size(); ++step) {
    const Work& work = schedule_.steps()[step].work;
    if (const auto* forward = std::get_if<Forward>(&work)) forwards[forward->layer].push_back(step);
    if (const auto* backward = std::get_if<Backward>(&work)) backwards[backward->layer].push_back(step);
    if (std::holds_alternative<Commit>(work)) commits.push_back(step);
  }
  const auto the_one = [&](const std::vector<StepId>& found, const std::string& what) {
    if (found.empty()) refuse(schedule_, "{} is missing: add one step for it", what);
    if (found.size() > 1)
      refuse(schedule_, "{} and {} do the same work: keep one", describe(schedule_, found[0]),
             describe(schedule_, found[1]));
    return found.front();
  };
  Program program;
  for (LayerId layer = 0; layer < workload_.layers.size(); ++layer) {
    program.forward.push_back(the_one(forwards[layer], fmt::format("the forward of layer {}", layer)));
    program.backward.push_back(the_one(backwards[layer], fmt::format("the backward of layer {}", layer)));
  }
  program.commit = the_one(commits, "the commit");
  return program;
}

std::vector<ScheduleCheck::Passage> ScheduleCheck::passages() const {
  std::vector<BucketSteps> by_bucket(grouping_.size());
  for (StepId step = 0; step < schedule_.steps().size(); ++step) {
    const Work& work = schedule_.steps()[step].work;
    if (const auto* update = std::get_if<Update>(&work)) by_bucket[update->bucket].updates.push_back(step);
    if (const auto* communicate = std::get_if<Communicate>(&work)) {
      BucketSteps& steps = by_bucket[communicate->bucket];
      if (communicate->op != CollectiveOp::all_gather)
        steps.reductions.push_back(step);
      else if (communicate->payload == Payload::gradients)
        steps.gradient_gathers.push_back(step);
      else
        steps.parameter_gathers.push_back(step);
    }
  }

  std::vector<Passage> passages;
  for (BucketId bucket = 0; bucket < grouping_.size(); ++bucket) {
    const auto& [reductions, gradient_gathers, parameter_gathers, updates] = by_bucket[bucket];
    const auto refuse_twice = [&](const std::vector<StepId>& steps, const char* what) {
      if (steps.size() > 1)
        refuse(schedule_, "bucket {} is {} twice, by {} and {}: keep one", bucket, what,
               describe(schedule_, steps[0]), describe(schedule_, steps[1]));
    };
    if (reductions.empty())
      refuse(schedule_, "the gradients of bucket {} are never reduced: add an all-reduce or a reduce-scatter",
             bucket);
    refuse_twice(reductions, "reduced");
    if (updates.empty())
      refuse(schedule_, "bucket {} is never updated: add an update after its reduction", bucket);
    refuse_twice(updates, "updated");
    std::vector<StepId> gathers = gradient_gathers;
    gathers.insert(gathers.end(), parameter_gathers.begin(), parameter_gathers.end());
    refuse_twice(gathers, "gathered");

    const StepId reduction = reductions.front(), update = updates.front();
    const bool shard = std::get<Update>(schedule_.steps()[update].work).scope == UpdateScope::shard;
    const bool scattered =
        std::get<Communicate>(schedule_.steps()[reduction].work).op == CollectiveOp::reduce_scatter;
    if (!scattered && !gathers.empty())
      refuse(schedule_, "{} repeats what {} has done: an all-reduce leaves nothing to gather",
             describe(schedule_, gathers.front()), describe(schedule_, reduction));
    if (!scattered && shard)
      refuse(schedule_, "{} leaves other shards stale: after {} update the whole",
             describe(schedule_, update), describe(schedule_, reduction));
    if (scattered && !shard && gradient_gathers.empty())
      refuse(schedule_,
             "{} has only a shard of the gradients from {}: gather gradients before, or update the shard",
             describe(schedule_, update), describe(schedule_, reduction));
    if (scattered && shard && parameter_gathers.empty())
      refuse(schedule_, "{} leaves other shards stale: gather parameters after it",
             describe(schedule_, update));
    passages.push_back({.reduction = reduction,
                        .reduced = gradient_gathers.empty() ? reduction : gradient_gathers.front(),
                        .update = update,
                        .publisher = parameter_gathers.empty() ? update : parameter_gathers.front()});
  }
  return passages;
}

void ScheduleCheck::precedence(const Program& program, const std::vector<Passage>& passages) const {
  const Precedence precedence(schedule_.steps().size(), edges_with_lanes(schedule_));
  StepId from = 0;
  std::vector<std::uint8_t> crossings;
  const auto starting = [&](StepId step) {
    from = step;
    crossings = precedence.crossings_from(step);
  };
  const auto require_before = [&](StepId to, std::uint8_t iterations, const char* because) {
    if (from == to || crossings[to] <= iterations) return;
    refuse(schedule_, "{} may run before {}{} has ended, but {}: add an edge between them",
           describe(schedule_, to), describe(schedule_, from),
           iterations == 0 ? "" : " of the iteration before", because);
  };

  std::vector<std::set<BucketId>> buckets_of_layer(workload_.layers.size());
  std::vector<std::vector<LayerId>> layers_of_bucket(grouping_.size());
  for (LayerId layer = 0; layer < workload_.layers.size(); ++layer) {
    for (const TensorId tensor : workload_.layers[layer].tensors)
      buckets_of_layer[layer].insert(grouping_.bucket_of(tensor));
    for (const BucketId bucket : buckets_of_layer[layer]) layers_of_bucket[bucket].push_back(layer);
  }

  for (LayerId layer = 0; layer < workload_.layers.size(); ++layer) {
    starting(program.forward[layer]);
    require_before(program.backward[layer], 0, "a backward needs what its forward kept");
    starting(program.backward[layer]);
    require_before(program.commit, 0, "gradients are final at the commit");
    for (const BucketId bucket : buckets_of_layer[layer])
      require_before(passages[bucket].reduction, 0, "it reduces gradients that this backward adds to");
  }
  starting(program.commit);
  for (const Passage& passage : passages)
    require_before(passage.update, 0, "an update needs the options of the commit");
  for (BucketId bucket = 0; bucket < grouping_.size(); ++bucket) {
    const Passage& passage = passages[bucket];
    starting(passage.reduction);
    require_before(passage.reduced, 0, "it gathers what this reduces");
    starting(passage.reduced);
    require_before(passage.update, 0, "an update needs reduced gradients");
    starting(passage.update);
    require_before(passage.publisher, 0, "it gathers what this updates");
    for (const LayerId layer : layers_of_bucket[bucket])
      require_before(program.backward[layer], 1, "it would write to gradients that are still read");
    starting(passage.publisher);
    for (const LayerId layer : layers_of_bucket[bucket])
      require_before(program.forward[layer], 1, "it reads parameters that are not whole before");
  }
}

}  // namespace dear
