#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "dear/comm/buckets/encoded_bucket.h"
#include "dear/comm/buckets/on_device.h"
#include "dear/comm/buckets/sparse_bucket.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/conductor/serial_lane.h"
#include "dear/schedule/policies/schedule.h"

namespace dear::buckets {

// The executor of the network lane in training and replay: it carries out a schedule's collectives on the
// flat buffers of the buckets, on a group or on a device ([Note: buckets on a device]). Gradients are
// averaged over ranks.
class BucketWire : public conductor::LaneExecutor {
 public:
  // The flat buffers of a bucket, as lay_out() lays them out: alike on every rank.
  struct Flat {
    View parameters;
    View gradients;
    std::int64_t bucket_bytes = 0;                     // Bucket::bytes, without padding: the unit of chunks
    std::shared_ptr<EncodedBucket> encoded = nullptr;  // where gradients travel encoded
    std::shared_ptr<SparseBucket> sparse = nullptr;    // where they are reduced as rows, if that is less
  };

  struct Options {
    // Carries rank 0's decision (schedule/policies/decision.h); without one a step that does is a
    // ScheduleError, as are other collectives than of buckets.
    View decision{};
    DeviceQueue* device = nullptr;                // where buckets lie on a device
    std::shared_ptr<const ShardShares> shares{};  // of buckets' shards, parameters and gradients; null: equal
  };
  // `ended` is called from the group's thread; it, and this object, must outlive every collective started.
  BucketWire(Group group, std::vector<Flat> buckets, conductor::OnStepEnd ended, Options options);

  conductor::Started start(Instance which, const Step& step) override;

  // Carries the collectives of these steps out now, in this order, and waits for those of the group: every
  // rank calls it, while nothing is at work. When a step's turn comes, a barrier stands in for its collective
  // on the group, once, and nothing on a device; until then another call leaves it out.
  void carry_out(const Schedule& schedule, const std::vector<StepId>& steps);
  // Makes gradients that were reduced, of which each rank has a shard, whole on every rank, and waits as
  // carry_out() does: every rank calls it, while nothing is at work.
  void gather_reduced(const Schedule& schedule);

  // Whether a collective on the bucket may end later than the device's queue takes it: the group carries it.
  [[nodiscard]] bool uses_group(BucketId bucket) const;
  // Sent by this rank in what was started so far, where collectives send no more than they must. From any
  // thread.
  [[nodiscard]] double sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  // Bytes of the memory in which rows of sparse gradients travel.
  [[nodiscard]] std::int64_t rows_bytes() const;

 private:
  [[nodiscard]] Request request_of(const Communicate& work) const;
  [[nodiscard]] SparseBucket* sparse_of(const Communicate& work, const Request& request) const;
  Pending issue(const Communicate& work, const Request& request, Group::Continuation then = {});
  Pending issue_as_rows(SparseBucket& bucket, const Request& reduction, Group::Continuation then);
  void enqueue(const Request& request, Payload payload);
  void carry_out(const Communicate& work, const Request& request, std::vector<Pending>& pending);
  void count(const Request& request);

  Group group_;
  std::vector<Flat> buckets_;
  conductor::OnStepEnd ended_;
  Options options_;
  std::set<StepId> carried_out_;
  std::atomic<double> sent_bytes_{0};
  std::unique_ptr<conductor::SerialLane> copies_;  // from the device; last: ends first
};

}  // namespace dear::buckets
