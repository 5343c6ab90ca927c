#include "dear/schedule/policies/check.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/refusal.h"

namespace dear::schedule {
namespace {

bool may_stand_on(const Work& work, LaneKind kind) {
  if (std::holds_alternative<Communicate>(work)) return kind == LaneKind::network;
  if (std::holds_alternative<Update>(work)) return kind == LaneKind::compute || kind == LaneKind::update;
  if (std::holds_alternative<Encode>(work) || std::holds_alternative<Decode>(work))
    return kind == LaneKind::codec;
  return kind == LaneKind::compute;
}

// Whether steps come before others. Mostly a single edge or the order of a lane shows it. Paths are searched
// only where neither does, so the time of a check grows with the length of the schedule and no faster.
class Order {
 public:
  explicit Order(const Schedule& schedule)
      : schedule_(schedule), precedence_(schedule.steps().size(), edges_with_lanes(schedule)) {}

  // Whether an edge or a lane makes `to` wait for `from` of so many iterations earlier.
  bool stated(StepId from, StepId to, std::uint8_t iterations) const {
    const bool same_lane = schedule_.steps()[from].lane == schedule_.steps()[to].lane;
    return (same_lane && (iterations > 0 || from < to)) || precedence_.has_edge(from, to, iterations);
  }
  // Whether some path does.
  bool before(StepId from, StepId to, std::uint8_t iterations) {
    if (stated(from, to, iterations)) return true;
    if (crossings_.empty() || from != searched_) {
      searched_ = from;
      crossings_ = precedence_.crossings_from(from);
    }
    return crossings_[to] <= iterations;
  }

 private:
  const Schedule& schedule_;
  graph::Precedence precedence_;
  StepId searched_ = 0;
  std::vector<std::uint8_t> crossings_;  // from it; empty before the first search
};

// Whether the publisher gathers what the iteration before has updated, because it does not follow the update
// of its own iteration. `forward` is a step that reads what it gathers. Edges are looked at first, because a
// search visits all of them.
bool gathers_ahead(Order& order, StepId update, StepId publisher, StepId forward) {
  if (update == publisher || order.stated(update, publisher, 0)) return false;
  if (order.stated(update, publisher, 1) && order.stated(publisher, forward, 0)) return true;
  return !order.before(update, publisher, 0) && order.before(update, publisher, 1);
}

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
    if (const auto* encode = std::get_if<Encode>(&work))
      refuse_unknown("bucket", encode->bucket, grouping_.size());
    if (const auto* decode = std::get_if<Decode>(&work))
      refuse_unknown("bucket", decode->bucket, grouping_.size());
    if (const auto* communicate = std::get_if<Communicate>(&work)) {
      if (is_of_bucket(communicate->payload)) refuse_unknown("bucket", communicate->bucket, grouping_.size());
      collective(step);
    }
    const Lane& lane = schedule_.lanes()[steps[step].lane];
    if (!may_stand_on(work, lane.kind))
      refuse(schedule_, "{} cannot stand on the {} lane \"{}\": put it on a lane of its own kind",
             describe(schedule_, step), name_of(lane.kind), lane.name);
  }

  const std::string flaw = flaw_of(schedule_.graph(), [&](StepId step) { return describe(schedule_, step); });
  if (!flaw.empty()) refuse(schedule_, "{}", flaw);
}

void ScheduleCheck::collective(StepId step) const {
  const auto& work = std::get<Communicate>(schedule_.steps()[step].work);
  const bool of_bucket = is_of_bucket(work.payload), gradients = work.payload == Payload::gradients;
  if (work.collective == Collective::barrier || has_output(work.collective) ||
      work.collective == Collective::reduce)
    refuse(schedule_, "{} does not exist: buckets are reduce-scattered, all-gathered and all-reduced",
           describe(schedule_, step));
  if (of_bucket == (work.collective == Collective::broadcast))
    refuse(schedule_, "{} does not exist: buffers and decisions, and nothing else, are broadcast",
           describe(schedule_, step));
  if (work.payload == Payload::encoded) {
    if (work.group != ProcessGroup::all || work.chunk.begin != 0 || work.chunk.end < 0)
      refuse(schedule_,
             "{} cannot go inside nodes, across them or in chunks: let all ranks send the part whole",
             describe(schedule_, step));
    return;
  }
  if (of_bucket && !gradients && work.collective != Collective::all_gather)
    refuse(schedule_, "{} would add up parameters: parameters are only gathered", describe(schedule_, step));
  if (work.group == ProcessGroup::across_nodes && (!gradients || work.collective != Collective::all_reduce))
    refuse(schedule_, "{} does not exist: across nodes gradients of shards are added up, and nothing else",
           describe(schedule_, step));
  if (work.group == ProcessGroup::node &&
      (work.collective == Collective::all_reduce || (gradients && work.collective == Collective::all_gather)))
    refuse(schedule_, "{} does not exist: inside nodes gradients are scattered, and parameters gathered",
           describe(schedule_, step));
  if (work.chunk == kWholeBucket) return;
  if (work.payload == Payload::parameters_again || (gradients && work.collective == Collective::all_gather) ||
      work.group != ProcessGroup::all)
    refuse(schedule_, "{} cannot come in chunks: let it carry the whole bucket", describe(schedule_, step));
  const std::int64_t bytes = grouping_.buckets()[work.bucket].bytes;
  if (work.chunk.begin < 0 || work.chunk.begin >= std::min(work.chunk.end, bytes))
    refuse(schedule_, "{} carries nothing: give it some of the bucket's {} bytes", describe(schedule_, step),
           bytes);
}

ScheduleCheck::Program ScheduleCheck::program() const {
  std::vector<std::vector<StepId>> forwards(workload_.layers.size()), backwards(workload_.layers.size());
  std::vector<StepId> commits, buffers, decisions;
  for (StepId step = 0; step < schedule_.steps().size(); ++step) {
    const Work& work = schedule_.steps()[step].work;
    if (const auto* forward = std::get_if<Forward>(&work)) forwards[forward->layer].push_back(step);
    if (const auto* backward = std::get_if<Backward>(&work)) backwards[backward->layer].push_back(step);
    if (std::holds_alternative<Commit>(work)) commits.push_back(step);
    const auto* communicate = std::get_if<Communicate>(&work);
    if (communicate == nullptr || is_of_bucket(communicate->payload)) continue;
    (communicate->payload == Payload::buffers ? buffers : decisions).push_back(step);
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
  if (!buffers.empty()) program.buffers = the_one(buffers, "");
  if (!decisions.empty()) program.decision = the_one(decisions, "");
  return program;
}

void ScheduleCheck::precedence(const Program& program, const std::vector<Passage>& passages) const {
  Order order(schedule_);
  const auto require_before = [&](StepId from, StepId to, std::uint8_t iterations, const char* because) {
    if (from == to || order.before(from, to, iterations)) return;
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
    const StepId backward = program.backward[layer];
    require_before(program.forward[layer], backward, 0, "a backward needs what its forward kept");
    require_before(backward, program.commit, 0, "gradients are final at the commit");
  }
  for (const auto& [bucket, reductions, across, gathered, update, publisher, again, encoded] : passages) {
    if (encoded) {
      for (const LayerId layer : layers_of_bucket[bucket])
        require_before(program.backward[layer], encoded->encodes.front(), 0,
                       "it encodes gradients that this backward adds to");
      for (const auto& [from, to, because] : encoded->order) require_before(from, to, 0, because);
      require_before(program.commit, *gathered, 0, "it overwrites gradients, which a program may still read");
    }
    const auto& options = std::get<Update>(schedule_.steps()[update].work).options;
    require_before(program.commit, update, options == OptionsOf::this_commit ? 0 : 1,
                   "an update needs the options of the commit");
    for (const StepId reduction : reductions) {
      if (reduction == reductions.front() || !order.before(reductions.front(), reduction, 0))
        for (const LayerId layer : layers_of_bucket[bucket])
          require_before(program.backward[layer], reduction, 0,
                         "it reduces gradients that this backward adds to");
      if (across) require_before(reduction, *across, 0, "it adds up what this has added inside nodes");
      if (gathered) require_before(reduction, *gathered, 0, "it gathers what this reduces");
      if (!gathered)
        require_before(across.value_or(reduction), update, 0, "an update needs reduced gradients");
    }
    if (gathered) require_before(*gathered, update, 0, "an update needs reduced gradients");
    const bool ahead =
        gathers_ahead(order, update, publisher, program.forward[layers_of_bucket[bucket].front()]);
    require_before(update, publisher, ahead ? 1 : 0, "it gathers what this updates");
    for (const LayerId layer : layers_of_bucket[bucket]) {
      const StepId forward = program.forward[layer], backward = program.backward[layer];
      require_before(update, backward, 1, "it would write to gradients that are still read");
      require_before(publisher, forward, ahead ? 0 : 1, "it reads parameters that are not whole before");
      if (!again) continue;
      require_before(forward, *again, 0, "parameters are dropped after it, to be gathered again");
      require_before(*again, backward, 0, "it reads parameters that are gathered again for it");
    }
  }

  if (program.decision)
    require_before(program.commit, *program.decision, 1, "rank 0 decides between two steps of training");
  for (const StepId forward : program.forward) {
    if (program.decision)
      require_before(*program.decision, forward, 1, "what rank 0 decided is in force from then on");
    if (!program.buffers) continue;
    require_before(*program.buffers, forward, 0, "it reads the buffers that rank 0 sends");
    require_before(forward, *program.buffers, 1, "it would overwrite buffers that are still read");
  }
}

}  // namespace dear::schedule
