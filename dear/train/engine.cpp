#include "dear/train/engine.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/digest.h"
#include "dear/base/error.h"
#include "dear/collective/exchange.h"
#include "dear/schedule/policy/policy.h"
#include "dear/train/operator_observer.h"
#include "dear/train/torch_types.h"

namespace dear::train {

Workload Engine::describe(const std::vector<TrainedParameter>& parameters,
                          const std::vector<std::size_t>& order, const std::vector<LayerId>& layer_of) {
  Workload workload{.name = "live", .tensors = {}, .layers = {}};
  const LayerId layers = *std::max_element(layer_of.begin(), layer_of.end()) + 1;
  workload.layers.resize(layers);
  for (const std::size_t i : order) {
    const TrainedParameter& parameter = parameters[i];
    Layer& layer = workload.layers[layer_of[i]];
    layer.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
    if (layer.name.empty()) layer.name = parameter.module.empty() ? "(root)" : parameter.module;
    workload.tensors.push_back(
        {parameter.name, parameter.tensor.numel(), *dtype_of(parameter.tensor.scalar_type())});
  }
  return workload;
}

Engine::Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
               const std::vector<LayerId>& layer_of, const torch::optim::Optimizer& optimizer,
               const Options& options)
    : group_(std::move(group)), parameters_(parameters), workload_(describe(parameters, order, layer_of)) {
  const Unobserved unobserved;
  grouping_ = std::make_unique<Grouping>(options.fusion(workload_));
  schedule_ = std::make_unique<Schedule>(make_schedule(find_policy(options.policy), workload_, *grouping_));
  agree(group_, "schedule", fmt::format("{} {:016x}", schedule_->policy(), schedule_->digest()));

  std::vector<std::uint32_t> rule_of;  // by TensorId
  for (const std::size_t i : order) rule_of.push_back(parameters[i].rule);
  locations_.resize(parameters.size());
  for (BucketId id = 0; id < grouping_->size(); ++id) {
    BucketStorage& bucket =
        buckets_.emplace_back(group_, lay_out(grouping_->buckets()[id], workload_, rule_of));
    for (std::size_t index = 0; index < bucket.layout().placements.size(); ++index) {
      const std::size_t parameter = order[bucket.layout().placements[index].tensor];
      locations_[parameter] = {id, index};
      bucket.adopt(index, parameters[parameter].tensor);
    }
    places_[bucket.parameter_storage()] = {id, Kind::parameters};
    places_[bucket.gradient_storage()] = {id, Kind::gradients};
  }

  std::vector<std::vector<ElementwiseOptimizer::FlatRun>> runs;
  std::vector<BucketWire::Flat> flats;
  for (BucketId id = 0; id < buckets_.size(); ++id) {
    const BucketLayout& layout = buckets_[id].layout();
    const auto& work = std::get<Update>(schedule_->steps()[schedule_->update_of(id)].work);
    runs.push_back(
        buckets_[id].runs(work.scope == UpdateScope::shard
                              ? shard_of(layout.elements, layout.dtype, group_.size(), group_.rank())
                              : Range{0, layout.elements}));
    flats.push_back(buckets_[id].flat());
  }
  optimizer_ = std::make_unique<ElementwiseOptimizer>(optimizer, std::move(runs));
  wire_ = std::make_unique<BucketWire>(
      group_, std::move(flats),
      [this](StepId step, double begin, double end) { conductor_->completed(step, begin, end); },
      [this](std::exception_ptr error) { conductor_->failed(std::move(error)); });
  conductor_ = std::make_unique<Conductor>(
      *schedule_, *wire_, update_side_, [this](const Update& work) { update(work); },
      Conductor::Options{.rank = group_.rank(), .timeout = group_.timeout(), .record = options.record});
  const auto lanes = schedule_->lanes();
  if (std::any_of(lanes.begin(), lanes.end(),
                  [](const Lane& lane) { return lane.kind == LaneKind::update; })) {
    update_lane_ = std::make_unique<SerialLane>([] {
      at::enableRecordFunction(false);  // for good: our own operators must not wait for themselves
    });
  }
}

Engine::~Engine() {
  if (std::uncaught_exceptions() > 0) {
    group_.abort("the training program ended with an error");
  } else {
    try {
      conductor_->synchronize();
    } catch (const std::exception&) {
      // The program was told by step(), or did not ask.
    }
  }
  conductor_->drain();
}

void Engine::update(const Update& work) {
  const Unobserved unobserved;
  optimizer_->update(work.bucket);
  buckets_[work.bucket].zero_gradients();
}

void Engine::UpdateSide::start(Instance which, const Step& step) {
  engine_.update_lane_->post([this, which, work = std::get<Update>(step.work)] {
    const double begin = now_seconds();
    try {
      engine_.update(work);
    } catch (const std::exception& error) {
      engine_.group_.abort(fmt::format("rank {} failed to update bucket {}: {}", engine_.group_.rank(),
                                       work.bucket, error.what()));
      engine_.conductor_->failed(std::current_exception());
      return;
    }
    engine_.conductor_->completed(which.step, begin, now_seconds());
  });
}

void Engine::capture_options(const torch::optim::Optimizer& optimizer) {
  optimizer_->capture_options(optimizer);
}

bool Engine::holds_gradient(std::size_t parameter) const {
  const auto [bucket, index] = locations_[parameter];
  return buckets_[bucket].holds_gradient(index, parameters_[parameter].tensor);
}

void Engine::restore_gradient(std::size_t parameter) {
  const Unobserved unobserved;
  const auto [bucket, index] = locations_[parameter];
  buckets_[bucket].restore_gradient(index, parameters_[parameter].tensor);
}

void Engine::restore_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, parameters_[i].tensor)) continue;
    const Unobserved unobserved;
    buckets_[bucket].restore_parameter(index, parameters_[i].tensor);
  }
}

std::int64_t Engine::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const BucketStorage& bucket : buckets_) bytes += bucket.layout().bytes();
  return bytes;
}

}  // namespace dear::train
