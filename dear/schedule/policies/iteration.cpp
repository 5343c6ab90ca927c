#include "dear/schedule/policies/iteration.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace dear {

Iteration::Iteration(const Workload& workload, const Grouping& grouping, std::string policy)
    : builder_(workload, grouping, std::move(policy)),
      compute_(builder_.lane("compute", LaneKind::compute)),
      network_(builder_.lane("network", LaneKind::network)),
      layers_of_bucket_(grouping.size()),
      first_chunk_(grouping.size()) {
  const auto layers = static_cast<LayerId>(workload.layers.size());
  for (LayerId layer = 0; layer < layers; ++layer) {
    forward_.push_back(builder_.add(Forward{layer}, compute_));
    for (const TensorId tensor : workload.layers[layer].tensors) {
      std::vector<LayerId>& users = layers_of_bucket_[grouping.bucket_of(tensor)];
      if (users.empty() || users.back() != layer) users.push_back(layer);
    }
  }
  backward_.resize(layers);
  for (LayerId layer = layers; layer-- > 0;) backward_[layer] = builder_.add(Backward{layer}, compute_);
  commit_ = builder_.add(Commit{}, compute_);
}

LaneId Iteration::add_update_lane() { return builder_.lane("update", LaneKind::update); }

std::vector<BucketId> Iteration::forward_order() const {
  std::vector<BucketId> order(layers_of_bucket_.size());
  std::iota(order.begin(), order.end(), BucketId{0});
  return order;
}

std::vector<BucketId> Iteration::backward_order() const {
  std::vector<BucketId> order = forward_order();
  std::reverse(order.begin(), order.end());
  return order;
}

void Iteration::broadcast_buffers() {
  broadcast_ = builder_.add(Communicate{Collective::broadcast, Payload::buffers}, network_);
  builder_.edge(commit_, *broadcast_, 1);
  for (const StepId forward : forward_) builder_.edge(*broadcast_, forward).edge(forward, *broadcast_, 1);
}

void Iteration::gather_under_forward(ProcessGroup group) {
  for (const BucketId bucket : forward_order()) {
    gathers_.push_back(builder_.add(
        Communicate{Collective::all_gather, Payload::parameters, bucket, kWholeBucket, group}, network_));
    for (const LayerId layer : users(bucket)) builder_.edge(gathers_[bucket], forward_[layer]);
    const LayerId reached = bucket == 0 ? 0 : users(bucket - 1).front();
    if (reached > 0) builder_.edge(forward_[reached - 1], gathers_[bucket]);
  }
}

StepId Iteration::reduce(Collective collective, BucketId bucket, Range chunk, ProcessGroup group) {
  const StepId step =
      builder_.add(Communicate{collective, Payload::gradients, bucket, chunk, group}, network_);
  std::optional<StepId>& first = first_chunk_[bucket];
  if (first && collective == Collective::all_reduce) {
    builder_.edge(*first, step);
  } else {
    first = step;
    after_backward(bucket, step);
  }
  return step;
}

std::vector<StepId> Iteration::reduce_all(Collective collective) {
  std::vector<StepId> reduced(layers_of_bucket_.size());
  for (const BucketId bucket : backward_order()) reduced[bucket] = reduce(collective, bucket);
  return reduced;
}

StepId Iteration::reduce_across(BucketId bucket, StepId after) {
  const StepId step = builder_.add(Communicate{Collective::all_reduce, Payload::gradients, bucket,
                                               kWholeBucket, ProcessGroup::across_nodes},
                                   network_);
  builder_.edge(after, step);
  return step;
}

StepId Iteration::gather(Payload payload, BucketId bucket, StepId after, Range chunk, ProcessGroup group) {
  const StepId step =
      builder_.add(Communicate{Collective::all_gather, payload, bucket, chunk, group}, network_);
  builder_.edge(after, step);
  return step;
}

void Iteration::gather_again(BucketId bucket, std::optional<LayerId> after, ProcessGroup group) {
  const StepId step = builder_.add(
      Communicate{Collective::all_gather, Payload::parameters_again, bucket, kWholeBucket, group}, network_);
  builder_.edge(after ? backward_[*after] : forward_.back(), step);
  for (const LayerId layer : users(bucket)) builder_.edge(forward_[layer], step).edge(step, backward_[layer]);
}

StepId Iteration::update(UpdateScope scope, BucketId bucket, LaneId lane, StepId after) {
  const StepId step = add_update({scope, bucket}, lane, after);
  builder_.edge(commit_, step);
  return step;
}

StepId Iteration::update_ahead(BucketId bucket, Range chunk, LaneId lane, StepId after) {
  const StepId step = add_update({UpdateScope::shard, bucket, chunk, OptionsOf::last_commit}, lane, after);
  builder_.edge(commit_, step, 1);
  return step;
}

StepId Iteration::add_update(const Update& update, LaneId lane, StepId after) {
  const StepId step = builder_.add(update, lane);
  builder_.edge(after, step);
  for (const LayerId layer : users(update.bucket)) builder_.edge(step, backward_[layer], 1);
  if (broadcast_) builder_.edge(step, *broadcast_, 1);
  return step;
}

void Iteration::after_backward(BucketId bucket, StepId step) {
  for (const LayerId layer : users(bucket)) builder_.edge(backward_[layer], step);
}

void Iteration::publish(BucketId bucket, StepId publisher) {
  for (const LayerId layer : users(bucket)) builder_.edge(publisher, forward_[layer], 1);
}

}  // namespace dear
