#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/types.h>

#include "dear/comm/buckets/layout.h"
#include "dear/comm/group/group.h"
#include "dear/train/engine/bucket_storage.h"
#include "dear/train/metrics/bucket_hooks.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// The parameters of a model, and their gradients, in the buckets of one grouping. Parameters are named by
// their index in the list that it is made with. What changes where one lies is called while nothing is at
// work.
class ParametersInBuckets {
 public:
  struct Options {
    Copies copies = Copies::one_per_rank;
    streams::BucketStreams* streams = nullptr;  // of the device on which buckets lie; null for the group
    std::string updates_ahead{};  // the policy, where it updates ahead of the commit; "" for others
  };
  // `order`: index by TensorId. `parameters`, `order` and `workload` outlive this.
  ParametersInBuckets(Group group, std::vector<TrainedParameter>& parameters,
                      const std::vector<std::size_t>& order, const Workload& workload, Options options);
  // Makes the next bucket, and moves its parameters and their gradients there. `own`: for each part that is
  // updated at a time, what this rank updates of it. All ranks together, none computing.
  BucketStorage& add(buckets::BucketLayout layout, std::vector<Range> own);
  // After the last bucket, all ranks together.
  void complete();

  [[nodiscard]] std::vector<TrainedParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] std::deque<BucketStorage>& buckets() { return buckets_; }
  [[nodiscard]] const std::deque<BucketStorage>& buckets() const { return buckets_; }
  struct Location {
    BucketId bucket;
    std::size_t index;  // in the bucket's layout
  };
  [[nodiscard]] const Location& location_of(std::size_t parameter) const { return locations_[parameter]; }
  [[nodiscard]] BucketId bucket_of(std::size_t parameter) const { return locations_[parameter].bucket; }
  [[nodiscard]] const buckets::TensorPlacement& place_of(std::size_t parameter) const {
    const auto [bucket, index] = locations_[parameter];
    return buckets_[bucket].layout().placements[index];
  }
  [[nodiscard]] TensorId tensor_of(std::size_t parameter) const { return place_of(parameter).tensor; }
  [[nodiscard]] std::vector<std::int64_t> bucket_bytes() const;

  // Whose storage an operator's input lies in.
  enum class Kind : std::uint8_t { parameters, gradients };
  struct Storage {
    BucketId bucket;
    Kind kind;
  };
  [[nodiscard]] const Storage* find(const void* storage) const {
    const auto found = storages_.find(storage);
    return found == storages_.end() ? nullptr : &found->second;
  }

  // A parameter's view, or its gradient's, was replaced since: take the values over. False, and nothing done,
  // for a gradient whose reduction has begun.
  [[nodiscard]] bool holds_gradient(std::size_t parameter) const;
  void restore_gradient(std::size_t parameter);
  void restore_parameters();
  // The parameter got no gradient on this rank: see [Note: unused parameters].
  void mark_unused(std::size_t parameter);
  // ConfigError for a parameter that was replaced by one of another shape or type, and, with one copy, for
  // what would change it outside of an update: see [Note: written in place].
  void require_usable() const;
  // ConfigError for a parameter that was replaced since updates ahead of the commit may have begun.
  void require_held() const;
  // With one copy: gives this rank memory of its own again, as far as there is any.
  void leave_one_copy();

  // Returns a bucket, or elements of its flat buffer, for its hooks.
  [[nodiscard]] BucketGradients gradients_of(BucketId bucket, std::optional<Range> elements = {}) const;
  // Says which gradients of a bucket on this rank are not finite: which elements of which tensor are NaN or
  // infinite, in words; "" where none are.
  [[nodiscard]] std::string nonfinite_gradients(BucketId bucket) const;
  // They say likewise what is not finite of the parameters in these elements of a bucket, and of a parameter
  // wherever it lies.
  [[nodiscard]] std::string nonfinite_parameters(BucketId bucket, const Range& elements) const;
  [[nodiscard]] std::string nonfinite_parameter(std::size_t parameter) const;

 private:
  void remember_versions();
  [[nodiscard]] bool one_copy() const { return options_.copies == Copies::one_for_all; }

  const Group group_;
  std::vector<TrainedParameter>& parameters_;
  const std::vector<std::size_t> order_;
  const Workload& workload_;
  const Options options_;
  std::vector<Location> locations_;
  std::deque<BucketStorage> buckets_;
  std::unordered_map<const void*, Storage> storages_;
  std::vector<std::uint32_t> versions_;  // by parameter, with one copy
};

}  // namespace dear::train
