#include "dear/schedule/policies/builder.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/check.h"

namespace dear {
namespace {

struct AddWork {
  Digest& digest;
  // The index of the alternative tells apart, say, forward and backward of one layer.
  void operator()(const Forward& work) const { digest.add(0).add(work.layer); }
  void operator()(const Backward& work) const { digest.add(1).add(work.layer); }
  void operator()(const Commit&) const { digest.add(2); }
  void operator()(const Communicate& work) const {
    digest.add(3)
        .add(static_cast<std::uint64_t>(work.collective))
        .add(static_cast<std::uint64_t>(work.payload))
        .add(work.bucket)
        .add(static_cast<std::uint64_t>(work.chunk.begin))
        .add(static_cast<std::uint64_t>(work.chunk.end))
        .add(static_cast<std::uint64_t>(work.group))
        .add(work.part);
  }
  void operator()(const Update& work) const {
    digest.add(4)
        .add(static_cast<std::uint64_t>(work.scope))
        .add(work.bucket)
        .add(static_cast<std::uint64_t>(work.chunk.begin))
        .add(static_cast<std::uint64_t>(work.chunk.end))
        .add(static_cast<std::uint64_t>(work.options));
  }
  void operator()(const Encode& work) const { digest.add(5).add(work.bucket).add(work.round); }
  void operator()(const Decode& work) const { digest.add(6).add(work.bucket); }
};

// The length of each list stands before it, so that different schedules give different sequences of values.
std::uint64_t digest_of(const Schedule& schedule, const Workload& workload, const Grouping& grouping) {
  Digest digest;
  digest.add(schedule.policy());
  digest.add(workload.tensors.size());
  for (const Tensor& tensor : workload.tensors)
    digest.add(tensor.name)
        .add(static_cast<std::uint64_t>(tensor.elements))
        .add(static_cast<std::uint64_t>(tensor.dtype));
  digest.add(workload.layers.size());
  for (const Layer& layer : workload.layers) {
    digest.add(layer.tensors.size());
    for (const TensorId tensor : layer.tensors) digest.add(tensor);
  }
  digest.add(grouping.size());
  for (const Bucket& bucket : grouping.buckets()) {
    digest.add(bucket.tensors.size());
    for (const TensorId tensor : bucket.tensors) digest.add(tensor);
  }
  digest.add(schedule.lanes().size());
  for (LaneId lane = 0; lane < schedule.lanes().size(); ++lane) {
    const auto& [name, kind] = schedule.lanes()[lane];
    digest.add(name).add(static_cast<std::uint64_t>(kind)).add(schedule.steps_of(lane).size());
    for (const StepId step : schedule.steps_of(lane)) digest.add(step);
  }
  digest.add(schedule.steps().size());
  for (const Step& step : schedule.steps()) std::visit(AddWork{digest}, step.work);
  digest.add(schedule.edges().size());
  for (const Edge& edge : schedule.edges()) digest.add(edge.from).add(edge.to).add(edge.back);
  return digest.value();
}

}  // namespace

ScheduleBuilder::ScheduleBuilder(const Workload& workload, const Grouping& grouping, std::string policy)
    : workload_(workload), grouping_(grouping) {
  draft_.policy_ = std::move(policy);
}

LaneId ScheduleBuilder::lane(std::string name, LaneKind kind) {
  draft_.lanes_.push_back({std::move(name), kind});
  return draft_.graph_.add_lane();
}

StepId ScheduleBuilder::add(Work work, LaneId lane) {
  if (lane >= draft_.lanes_.size())
    throw ScheduleError(fmt::format(
        "schedule of policy {}: {} is to stand on lane {}, which does not exist: make the lane first",
        draft_.policy_, name_of(work), lane));
  draft_.steps_.push_back({work, lane});
  return draft_.graph_.add_step(lane);
}

ScheduleBuilder& ScheduleBuilder::edge(StepId from, StepId to, std::uint32_t back) {
  draft_.graph_.add_edge({from, to, back});
  return *this;
}

Schedule ScheduleBuilder::build() && {
  const schedule::ScheduleCheck check(draft_, workload_, grouping_);
  check.structure();
  schedule::ScheduleCheck::Program program = check.program();
  const std::vector<schedule::ScheduleCheck::Passage> passages = check.passages();
  check.precedence(program, passages);

  draft_.forward_of_ = std::move(program.forward);
  draft_.backward_of_ = std::move(program.backward);
  draft_.commit_ = program.commit;
  draft_.decision_ = program.decision;
  draft_.publishers_of_.resize(grouping_.size());
  draft_.updates_of_.resize(grouping_.size());
  for (const schedule::ScheduleCheck::Passage& passage : passages) {
    draft_.publishers_of_[passage.bucket].push_back(passage.publisher);
    draft_.updates_of_[passage.bucket].push_back(passage.update);
  }
  draft_.digest_ = digest_of(draft_, workload_, grouping_);
  return std::move(draft_);
}

}  // namespace dear
