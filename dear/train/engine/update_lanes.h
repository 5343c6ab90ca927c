#pragma once

#include <memory>

#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/conductor/serial_lane.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/engine/bucket_updates.h"
#include "dear/train/engine/compressed_buckets.h"

namespace dear::train {

// The executor of the update lane and of the codec lane: each is a thread. Updates on a device are enqueued
// by whoever starts them, and are done then.
class UpdateLanes : public conductor::LaneExecutor {
 public:
  // `ended` is called from the threads; all outlive this.
  UpdateLanes(BucketUpdates& updates, CompressedBuckets& compression, conductor::OnStepEnd ended)
      : updates_(updates), compression_(compression), ended_(std::move(ended)) {}
  // Starts the threads that the schedule needs.
  void begin(const Schedule& schedule, bool on_device);
  conductor::Started start(Instance which, const Step& step) override;

 private:
  void run(Instance which, const Work& work);

  BucketUpdates& updates_;
  CompressedBuckets& compression_;
  conductor::OnStepEnd ended_;
  std::unique_ptr<conductor::SerialLane> update_lane_, codec_lane_;
};

}  // namespace dear::train
