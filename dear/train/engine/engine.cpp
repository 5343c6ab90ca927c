#include "dear/train/engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/compressed.h"
#include "dear/schedule/policies/decision.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/buckets/whole_tensors.h"
#include "dear/train/engine/sparse_buckets.h"
#include "dear/train/optim/norm_exchange.h"
#include "dear/train/optim/torch_types.h"

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
        {parameter.name, parameter.tensor.numel(), *optim::dtype_of(parameter.tensor.scalar_type())});
  }
  return workload;
}

void Engine::add_times(const Profile& profile, Workload& workload) {
  for (std::size_t i = 0; i < workload.layers.size(); ++i) {
    workload.layers[i].forward_seconds = profile.forward_seconds.at(i);
    workload.layers[i].backward_seconds = profile.backward_seconds.at(i);
  }
  workload.update_seconds = profile.update_seconds;
}

Engine::Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
               const std::vector<LayerId>& layer_of, const Optimizer& optimizer, const Options& options)
    : group_(std::move(group)),
      one_copy_(options.one_copy),
      by_program_(options.rules.by_program()),
      widening_(options.rules.widening),
      hooks_(options.hooks),
      check_parameters_(options.check_parameters),
      earlier_iterations_(options.iterations),
      parameters_(parameters),
      workload_(describe(parameters, order, layer_of)) {
  const autograd::Unobserved unobserved;
  grouping_ = std::make_unique<Grouping>(
      set_sparse_apart(workload_, options.fusion(workload_), order, options, parameters, group_.size()));
  cost::CollectiveTimes times{.ranks = group_.size()};
  Workload timed = workload_;
  if (options.profile) {
    add_times(*options.profile, timed);
    times = cost::ring_times(options.profile->link, group_.size());
  }
  schedule_ =
      std::make_unique<Schedule>(make_schedule(find_policy(options.policy), timed, *grouping_, times));
  compression_ = options.compression;
  const std::vector<std::int64_t> rows = rows_of_tensors(order);
  if (compression_)
    *schedule_ = with_encodings(*schedule_, workload_, *grouping_,
                                encodings_of(*compression_, timed, *grouping_, times, {}, {}, rows));
  if (one_copy_) *schedule_ = with_one_copy(*schedule_, workload_, *grouping_);
  if (options.decision.buffer.bytes() > 0) *schedule_ = with_decision(*schedule_, workload_, *grouping_);
  if (options.collectives)
    streams_ = std::make_unique<streams::BucketStreams>(parameters.front().tensor.device(), grouping_->size(),
                                                        options.without_guard);
  agree(group_, "schedule", schedule_->digest(),
        [&] { return fmt::format("{} {:016x}", schedule_->policy(), schedule_->digest()); });

  std::vector<std::uint32_t> group_of;  // by TensorId
  for (const std::size_t i : order) group_of.push_back(parameters[i].parameter_group);
  const auto updates_shards = [&](BucketId id) {
    const auto& update = std::get<Update>(schedule_->steps()[schedule_->updates_of(id).front()].work);
    return update.scope == UpdateScope::shard;
  };
  const buckets::CostOfTensors costs(options.rules.whole_costs, order);
  std::vector<double> load;  // by rank
  std::vector<FlatVectors> vectors;
  for (std::size_t i = 0; !by_program_ && i < optimizer.parameter_groups().size(); ++i)
    vectors.push_back(optimizer.vectors(i));
  const Copies copies = by_program_ ? Copies::none : one_copy_ ? Copies::one_for_all : Copies::one_per_rank;
  locations_.resize(parameters.size());
  std::vector<std::vector<optim::ShardedOptimizer::FlatRun>> runs;
  std::vector<buckets::BucketWire::Flat> flats;
  for (BucketId id = 0; id < grouping_->size(); ++id) {
    const Bucket& tensors = grouping_->buckets()[id];
    const std::vector<bool> encoded =
        compression_ ? encoded_tensors(*compression_, workload_, tensors, rows) : std::vector<bool>();
    buckets::BucketLayout layout =
        updates_shards(id) && costs.any_whole(tensors)
            ? buckets::lay_out_whole(tensors, workload_, group_of, group_.size(), costs.cost_of, load)
            : buckets::lay_out(tensors, workload_, group_of, group_.size(), encoded);
    std::vector<Range> own;
    for (const Part& part : add_parts(id, layout)) own.push_back(own_range(part));
    BucketStorage& bucket = streams_
                                ? buckets_.emplace_back(parameters.front().tensor.device(), std::move(layout),
                                                        std::move(own), copies)
                                : buckets_.emplace_back(group_, std::move(layout), std::move(own), copies);
    for (std::size_t index = 0; index < bucket.layout().placements.size(); ++index) {
      const std::size_t parameter = order[bucket.layout().placements[index].tensor];
      locations_[parameter] = {id, index};
      torch::Tensor& tensor = parameters[parameter].tensor;
      if (streams_)
        for (const torch::Tensor& old : {tensor, tensor.grad()}) streams_->keep_for_current(old);
      bucket.adopt(index, tensor, parameters[parameter].strides);
    }
    for (std::size_t part = 0; part < schedule_->updates_of(id).size(); ++part) {
      bucket.write_incoming(part);
      runs.push_back(by_program_ ? decltype(runs)::value_type() : bucket.runs(part, vectors));
    }
    encoded_.push_back(make_encoded(bucket, rows));
    flats.push_back(bucket.flat());
    flats.back().encoded = encoded_.back();
    flats.back().sparse = make_sparse(bucket, parameters, order, options, group_, streams_.get());
    if (!by_program_) storages_[bucket.parameter_storage()] = {id, Kind::parameters};
    storages_[bucket.gradient_storage()] = {id, Kind::gradients};
  }

  if (one_copy_) {
    group_.barrier().wait();  // each rank has written its shards: nobody reads the others before
    remember_versions();
  }

  note_parameter_storages();

  optim::ShardedOptimizer::SumOverRanks sum_over_ranks;
  const std::size_t norms = by_program_ ? 0 : optimizer.norms();
  if (norms > 0) {
    std::vector<std::vector<TensorId>> cut;
    for (const Part& part : parts_)
      cut.push_back(part.scattered
                        ? buckets::tensors_cut(buckets_[part.bucket].layout(), part.elements, group_.size())
                        : std::vector<TensorId>());
    const auto exchange = std::make_shared<optim::NormExchange>(group_, std::move(cut), norms);
    sum_over_ranks = [exchange](std::size_t part, auto& sums) { exchange->sum(part, sums); };
  }
  optimizer_ = std::make_unique<optim::ShardedOptimizer>(
      by_program_ ? optim::make_idle() : optimizer.make_flat(), optimizer.parameter_groups().size(),
      std::move(runs), widening_, norms, std::move(sum_over_ranks));
  if (streams_) queue_ = std::make_unique<streams::BucketQueue>(options.collectives, *streams_);
  wire_ = std::make_unique<buckets::BucketWire>(
      group_, std::move(flats), [this](const conductor::StepEnd& end) { conductor_->ended(end); },
      buckets::BucketWire::Options{.decision = options.decision, .device = queue_.get()});
  conductor_ = std::make_unique<conductor::Conductor>(
      *schedule_, *wire_, update_executor_,
      [this](const Update& work) { update(work, conductor_->iteration() - 1); },
      conductor::Conductor::Options{
          .rank = group_.rank(), .timeout = group_.timeout(), .record = options.record});
  const auto lane_of = [&](LaneKind kind) -> std::unique_ptr<conductor::SerialLane> {
    const std::vector<Lane>& lanes = schedule_->lanes();
    if ((streams_ && kind == LaneKind::update) ||
        std::none_of(lanes.begin(), lanes.end(), [&](const Lane& lane) { return lane.kind == kind; }))
      return nullptr;
    return std::make_unique<conductor::SerialLane>([] {
      at::enableRecordFunction(false);  // for good: our own operators must not wait for themselves
    });
  };
  if (streams_) streams_->adopted();
  update_lane_ = lane_of(LaneKind::update);
  codec_lane_ = lane_of(LaneKind::codec);
}

Engine::~Engine() {
  try {
    conductor_->synchronize();
  } catch (const std::exception&) {
    // The program was told by step(), or did not ask.
  }
  conductor_->drain();
}

std::span<const Engine::Part> Engine::add_parts(BucketId bucket, const buckets::BucketLayout& layout) {
  const std::size_t first = parts_.size();
  for (const StepId step : schedule_->updates_of(bucket)) {
    const auto& work = std::get<Update>(schedule_->steps()[step].work);
    parts_.push_back({.bucket = bucket,
                      .chunk = work.chunk,
                      .index = parts_.size() - first,
                      .elements = buckets::part_of(work.chunk, grouping_->buckets()[bucket].bytes,
                                                   layout.elements, layout.dtype, group_.size()),
                      .scattered = work.scope == UpdateScope::shard});
  }
  return std::span(parts_).subspan(first);
}

Range Engine::own_range(const Part& part) const {
  if (!part.scattered) return part.elements;
  const Range shard =
      shard_of(part.elements.size(), grouping_->buckets()[part.bucket].dtype, group_.size(), group_.rank());
  return {part.elements.begin + shard.begin, part.elements.begin + shard.end};
}

// Updates read them on the communication stream, until the next capture lets go of them.
void Engine::capture_options() {
  optimizer_->capture_options();
  if (!streams_) return;
  for (const torch::Tensor& option : optimizer_->option_tensors()) streams_->keep_for_communication(option);
}

void Engine::update(const Update& work, std::int64_t iteration) {
  const autograd::Unobserved unobserved;
  try {
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& one) {
      return one.bucket == work.bucket && one.chunk == work.chunk;
    });
    const auto zero = [&] {
      if (!by_program_ || drop_updates_) buckets_[part->bucket].zero_gradients(part->elements);
    };
    if (!streams_) {
      update_part(*part, iteration);
      return zero();
    }
    const auto guard = streams_->on_communication();
    update_part(*part, iteration);
    streams_->updated(part->bucket, zero);
  } catch (const std::exception& error) {
    group_.abort(
        fmt::format("rank {} failed to update bucket {}: {}", group_.rank(), work.bucket, error.what()));
    throw;
  }
}

void Engine::update_part(const Part& part, std::int64_t iteration) {
  buckets_[part.bucket].write_incoming(part.index);
  if (!drop_updates_ && hooks_ != nullptr && hooks_->any(HookAt::after_reduction)) {
    BucketGradients means = gradients_of(part.bucket, own_range(part));
    means.iteration = earlier_iterations_ + iteration;
    hooks_->run(HookAt::after_reduction, means);
  }
  if (!drop_updates_) optimizer_->update(static_cast<std::size_t>(&part - parts_.data()));
  if (check_parameters_ && !by_program_) require_finite_parameters(part, earlier_iterations_ + iteration);
}

conductor::Started Engine::UpdateExecutor::start(Instance which, const Step& step) {
  const auto* update = std::get_if<Update>(&step.work);
  if (engine_.streams_ && update != nullptr) {
    engine_.update(*update, which.iteration);
    return conductor::Started::done;
  }
  if (const auto* encode = std::get_if<Encode>(&step.work); encode != nullptr && encode->round == 0)
    if (const auto& copy = engine_.copies_[encode->bucket].gradients) copy->follow();
  conductor::SerialLane& lane = update != nullptr ? *engine_.update_lane_ : *engine_.codec_lane_;
  lane.post([this, which, work = step.work] {
    conductor::StepEnd end{.span = {which, now_seconds(), 0}};
    try {
      const auto* update = std::get_if<Update>(&work);
      update != nullptr ? engine_.update(*update, which.iteration) : engine_.code(work);
    } catch (...) {
      end.error = std::current_exception();
    }
    end.span.end_seconds = now_seconds();
    engine_.conductor_->ended(end);
  });
  return conductor::Started::under_way;
}

bool Engine::updates_ahead() const {
  return std::any_of(schedule_->steps().begin(), schedule_->steps().end(), [](const Step& step) {
    const auto* update = std::get_if<Update>(&step.work);
    return update != nullptr && update->options == OptionsOf::last_commit;
  });
}

bool Engine::holds_gradient(std::size_t parameter) const {
  const auto [bucket, index] = locations_[parameter];
  return buckets_[bucket].holds_gradient(index, parameters_[parameter].tensor);
}

void Engine::restore_gradient(std::size_t parameter) {
  const autograd::Unobserved unobserved;
  const auto [bucket, index] = locations_[parameter];
  torch::Tensor& tensor = parameters_[parameter].tensor;
  if (streams_) {
    streams_->await(bucket, streams::Part::gradients);
    streams_->keep_for_current(tensor.grad());
  }
  buckets_[bucket].restore_gradient(index, tensor);
}

void Engine::mark_unused(std::size_t parameter) {
  const autograd::Unobserved unobserved;
  const auto [bucket, index] = locations_[parameter];
  buckets_[bucket].mark_unused(index);
}

void Engine::require_held_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, parameters_[i].tensor)) continue;
    throw ConfigError(
        fmt::format("rank {}: parameter '{}' was replaced between backward and step(), where policy {} "
                    "updates already: replace it after step(), or train with policy dear",
                    group_.rank(), parameters_[i].name, schedule_->policy()));
  }
}

void Engine::restore_parameters() {
  require_usable_parameters();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, index] = locations_[i];
    if (buckets_[bucket].holds_parameter(index, parameters_[i].tensor)) continue;
    const autograd::Unobserved unobserved;
    if (streams_) {
      streams_->await(bucket, streams::Part::parameters);
      streams_->keep_for_current(parameters_[i].tensor);
    }
    buckets_[bucket].restore_parameter(index, parameters_[i].tensor);
  }
  if (one_copy_) remember_versions();
}

std::vector<std::int64_t> Engine::bucket_bytes() const {
  std::vector<std::int64_t> bytes;
  for (const BucketStorage& bucket : buckets_) bytes.push_back(bucket.layout().bytes());
  return bytes;
}

}  // namespace dear::train
