#include "dear/train/engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/comm/buckets/whole_tensors.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/compressed.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/engine/model_schedule.h"
#include "dear/train/engine/sparse_buckets.h"

namespace dear::train {
namespace {

Copies copies_of(const EngineOptions& options) {
  if (options.rules.by_program()) return Copies::none;
  return options.one_copy ? Copies::one_for_all : Copies::one_per_rank;
}

// Lays buckets out one after another: ranks that update tensors whole share the load of all buckets.
class Layouts {
 public:
  Layouts(const Workload& workload, const Schedule& schedule, const std::vector<TrainedParameter>& parameters,
          const std::vector<std::size_t>& order, const EngineOptions& options, int ranks)
      : workload_(workload),
        schedule_(schedule),
        options_(options),
        ranks_(ranks),
        costs_(options.rules.whole_costs, order) {
    for (const std::size_t i : order) group_of_.push_back(parameters[i].parameter_group);
  }
  buckets::BucketLayout next(BucketId id, const Bucket& bucket, const std::vector<std::int64_t>& rows) {
    const auto& update = std::get<Update>(schedule_.steps()[schedule_.updates_of(id).front()].work);
    if (update.scope == UpdateScope::shard && costs_.any_whole(bucket))
      return buckets::lay_out_whole(bucket, workload_, group_of_, ranks_, costs_.cost_of, load_);
    const std::vector<bool> encoded = options_.compression
                                          ? encoded_tensors(*options_.compression, workload_, bucket, rows)
                                          : std::vector<bool>();
    return buckets::lay_out(bucket, workload_, group_of_, ranks_, encoded);
  }

 private:
  const Workload& workload_;
  const Schedule& schedule_;
  const EngineOptions& options_;
  const int ranks_;
  const buckets::CostOfTensors costs_;
  std::vector<std::uint32_t> group_of_;  // by TensorId
  std::vector<double> load_;             // by rank
};

std::string policy_if_ahead(const Schedule& schedule) {
  const bool ahead = std::any_of(schedule.steps().begin(), schedule.steps().end(), [](const Step& step) {
    const auto* update = std::get_if<Update>(&step.work);
    return update != nullptr && update->options == OptionsOf::last_commit;
  });
  return ahead ? schedule.policy() : "";
}

std::unique_ptr<streams::BucketStreams> make_streams(const std::vector<TrainedParameter>& parameters,
                                                     const Grouping& grouping, const EngineOptions& options) {
  if (!options.collectives) return nullptr;
  return std::make_unique<streams::BucketStreams>(parameters.front().tensor.device(), grouping.size(),
                                                  options.without_guard);
}

}  // namespace

Engine::Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
               const std::vector<LayerId>& layer_of, const Optimizer& optimizer, const Options& options)
    : group_(std::move(group)),
      copies_(copies_of(options)),
      workload_(workload_of(parameters, order, layer_of)),
      grouping_(
          set_sparse_apart(workload_, options.fusion(workload_), order, options, parameters, group_.size())),
      rows_(rows_of_tensors(parameters, order)),
      schedule_(make_training_schedule(workload_, grouping_, options, rows_, group_.size())),
      streams_(make_streams(parameters, grouping_, options)),
      model_(group_, parameters, order, workload_,
             {.copies = copies_, .streams = streams_.get(), .updates_ahead = policy_if_ahead(schedule_)}),
      compression_(group_, model_, options.compression, streams_.get()),
      updates_(
          std::make_unique<BucketUpdates>(group_, model_, schedule_, optimizer, options, streams_.get())) {
  const autograd::Unobserved unobserved;
  agree(group_, "schedule", schedule_.digest(),
        [&] { return fmt::format("{} {:016x}", schedule_.policy(), schedule_.digest()); });
  Layouts layouts(workload_, schedule_, parameters, order, options, group_.size());
  std::vector<buckets::BucketWire::Flat> flats;
  for (BucketId id = 0; id < grouping_.size(); ++id) {
    const Bucket& tensors = grouping_.buckets()[id];
    buckets::BucketLayout layout = layouts.next(id, tensors, rows_);
    std::vector<Range> own = updates_->plan(id, tensors.bytes, layout);
    BucketStorage& bucket = model_.add(std::move(layout), std::move(own));
    updates_->add(bucket, id);
    flats.push_back(bucket.flat());
    flats.back().encoded = compression_.add(bucket, rows_);
    flats.back().sparse = make_sparse(bucket, parameters, order, options, group_, streams_.get());
  }
  model_.complete();
  updates_->complete(optimizer);

  const auto ended = [this](const conductor::StepEnd& end) { conductor_->ended(end); };
  if (streams_) queue_ = std::make_unique<streams::BucketQueue>(options.collectives, *streams_);
  wire_ = std::make_unique<buckets::BucketWire>(
      group_, std::move(flats), ended,
      buckets::BucketWire::Options{
          .decision = options.decision, .device = queue_.get(), .shares = options.shares});
  lanes_ = std::make_unique<UpdateLanes>(*updates_, compression_, ended);
  conductor_ = std::make_unique<conductor::Conductor>(
      schedule_, *wire_, *lanes_,
      [this](const Update& work) { updates_->update(work, conductor_->iteration() - 1); },
      conductor::Conductor::Options{
          .rank = group_.rank(), .timeout = group_.timeout(), .record = options.record});
  if (streams_) streams_->adopted();
  lanes_->begin(schedule_, streams_ != nullptr);
}

Engine::~Engine() {
  try {
    conductor_->synchronize();
  } catch (const std::exception&) {
    // The program was told by step(), or did not ask.
  }
  conductor_->drain();
  streams_.reset();  // waits for the device, before buckets are freed
}

bool Engine::updates_ahead() const { return !policy_if_ahead(schedule_).empty(); }

}  // namespace dear::train
