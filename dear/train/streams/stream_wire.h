#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::streams {

// The executor of the network lane in training on a device with streams: it enqueues a schedule's collectives
// on the communication stream. A step has ended when it is enqueued. Gradients are averaged over ranks.
class StreamWire : public conductor::LaneExecutor {
 public:
  // What of a bucket's flat buffer a collective carries.
  using VectorOf = std::function<at::Tensor(const Communicate&)>;
  StreamWire(std::shared_ptr<StreamCollectives> collectives, BucketStreams& streams, VectorOf vector_of)
      : collectives_(std::move(collectives)), streams_(streams), vector_of_(std::move(vector_of)) {}

  // ScheduleError for a collective that is not of a bucket's parameters or gradients.
  void start(Instance which, const Step& step) override;
  [[nodiscard]] bool ends_at_start() const override { return true; }

  // Enqueues the collectives of these steps now, in this order, on every rank. When a step's turn comes,
  // nothing is left to do, once; until then another call leaves it out.
  void carry_out(const Schedule& schedule, const std::vector<StepId>& steps);
  // Makes gradients that were reduced, of which each rank has a shard, whole on every rank.
  void gather_reduced(const Schedule& schedule);

  [[nodiscard]] double sent_bytes() const { return sent_bytes_; }
  [[nodiscard]] StreamCollectives& collectives() { return *collectives_; }

 private:
  void enqueue(const Communicate& work);

  std::shared_ptr<StreamCollectives> collectives_;
  BucketStreams& streams_;
  VectorOf vector_of_;
  std::set<StepId> carried_out_;
  double sent_bytes_ = 0;
};

}  // namespace dear::streams
