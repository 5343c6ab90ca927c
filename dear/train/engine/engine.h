#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dear/comm/buckets/bucket_wire.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/conductor/conductor.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/engine/bucket_updates.h"
#include "dear/train/engine/compressed_buckets.h"
#include "dear/train/engine/engine_options.h"
#include "dear/train/engine/parameters_in_buckets.h"
#include "dear/train/engine/update_lanes.h"
#include "dear/train/metrics/memory_report.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/reduced_gradients.h"
#include "dear/train/streams/bucket_queue.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/gradients_on_stream.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// One grouping and schedule in force: the model in buckets, updates, the wire, and the conductor that joins
// them.
class Engine {
 public:
  using Options = EngineOptions;
  // `order`: indices into `parameters` by first use, the same on every rank; `layer_of[i]`: the layer of
  // parameters[i], numbered in forward order. Moves parameters and gradients into buckets: all ranks
  // together, none computing.
  Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
         const std::vector<LayerId>& layer_of, const Optimizer& optimizer, const Options& options);
  ~Engine();  // waits for what is at work, or for the end of a group that has failed
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] ParametersInBuckets& model() { return model_; }
  [[nodiscard]] const ParametersInBuckets& model() const { return model_; }
  [[nodiscard]] BucketUpdates& updates() { return *updates_; }
  [[nodiscard]] const BucketUpdates& updates() const { return *updates_; }
  [[nodiscard]] CompressedBuckets& compression() { return compression_; }
  [[nodiscard]] const CompressedBuckets& compression() const { return compression_; }
  [[nodiscard]] conductor::Conductor& conductor() { return *conductor_; }
  [[nodiscard]] const conductor::Conductor& conductor() const { return *conductor_; }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const Grouping& grouping() const { return grouping_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  // See [Note: on streams]. Null where buckets are memory of the group.
  [[nodiscard]] streams::BucketStreams* streams() const { return streams_.get(); }
  // Whether a step of the bucket may end after its start, so that whoever needs it waits for the conductor.
  [[nodiscard]] bool uses_group(BucketId bucket) const { return wire_->uses_group(bucket); }
  // Under a policy that updates ahead of the commit, where options must stand when the first gradient
  // arrives: [Note: updates ahead of the commit].
  [[nodiscard]] bool updates_ahead() const;
  [[nodiscard]] double sent_bytes() const { return wire_->sent_bytes(); }
  // Reports the memory of buckets, state and compression on this rank. While nothing is at work.
  [[nodiscard]] MemoryReport memory() const;

  // [program]
  // Reduces what else is to be reduced in this iteration, every layer having been reported: all ranks
  // together. Returns the means that lie on this rank then. Not where gradients travel compressed.
  optim::ReducedGradients& reduce_gradients();
  // After it, all ranks together: makes the means whole on every rank.
  void gather_gradients();
  // After reduce_gradients(), on a device.
  [[nodiscard]] streams::GradientsOnStream gradients_on_stream();
  // See [Note: updates of the program]. After the commit, while nothing is at work: gives parameters that no
  // rank used an undefined gradient, and leaves those that the program has replaced as they are.
  void give_gradients_to_program();
  // After the update: looks at the parameters where that was asked for, zeroes all gradients and makes them
  // lie in buckets again.
  void take_gradients_back();

 private:
  struct Place {
    BucketId bucket;
    Range elements;  // of its flat gradients
  };
  [[nodiscard]] std::vector<Place> held_places() const, counted_places() const;  // [Note: counted and held]
  [[nodiscard]] optim::ReducedGradients find_reduced_gradients() const;

  Group group_;
  const Copies copies_;
  const Workload workload_;
  const Grouping grouping_;
  const std::vector<std::int64_t> rows_;  // by TensorId
  const Schedule schedule_;
  std::unique_ptr<streams::BucketStreams> streams_;
  ParametersInBuckets model_;
  CompressedBuckets compression_;
  std::unique_ptr<BucketUpdates> updates_;
  std::optional<optim::ReducedGradients> reduced_;  // once they were asked for
  std::unique_ptr<streams::BucketQueue> queue_;     // of streams_
  std::unique_ptr<buckets::BucketWire> wire_;
  std::unique_ptr<conductor::Conductor> conductor_;
  std::unique_ptr<UpdateLanes> lanes_;  // last: ends first
};

}  // namespace dear::train
