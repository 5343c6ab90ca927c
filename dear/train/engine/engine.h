#pragma once

// size: the one object in which buckets, optimiser, wire and conductor meet

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/conductor/conductor.h"
#include "dear/schedule/conductor/serial_lane.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/buckets/bucket_wire.h"
#include "dear/train/buckets/layout.h"
#include "dear/train/engine/bucket_storage.h"
#include "dear/train/engine/engine_options.h"
#include "dear/train/metrics/bucket_hooks.h"
#include "dear/train/metrics/memory_report.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/reduced_gradients.h"
#include "dear/train/optim/sharded_optimizer.h"
#include "dear/train/streams/bucket_queue.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/gradients_on_stream.h"
#include "dear/train/streams/host_copy.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// One grouping and schedule in force: buckets in memory, the optimiser on their shards, the wire, the update
// lane and the conductor that joins them.
class Engine {
 public:
  using Profile = EngineProfile;
  using Options = EngineOptions;
  // `order`: indices into `parameters` by first use, the same on every rank; `layer_of[i]`: the layer of
  // parameters[i], numbered in forward order. Moves parameters and gradients into buckets: all ranks
  // together, none computing.
  Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
         const std::vector<LayerId>& layer_of, const Optimizer& optimizer, const Options& options);
  static void add_times(const Profile& profile, Workload& workload);
  // As the engine sees the parameters: layers and tensors in the order of their use, without times.
  [[nodiscard]] static Workload describe(const std::vector<TrainedParameter>& parameters,
                                         const std::vector<std::size_t>& order,
                                         const std::vector<LayerId>& layer_of);
  ~Engine();  // waits for what is at work, or for the end of a group that has failed
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // [program]
  void capture_options();
  [[nodiscard]] std::int64_t updates() const { return optimizer_->updates(); }  // between two iterations
  // Under a policy that updates ahead of the commit, where options must stand when the first gradient
  // arrives: [Note: updates ahead of the commit].
  [[nodiscard]] bool updates_ahead() const;
  [[nodiscard]] bool has_current_options() const { return optimizer_->has_current_options(); }
  // Reduces what else is to be reduced in this iteration, every layer having been reported: all ranks
  // together. Returns the means that lie on this rank then. Not where gradients travel compressed.
  optim::ReducedGradients& reduce_gradients();
  // After it, all ranks together: makes the means whole on every rank.
  void gather_gradients();
  // Parameter i's view, or its gradient's, was replaced since: take the values over. False, and nothing done,
  // for a gradient whose reduction has begun.
  [[nodiscard]] bool holds_gradient(std::size_t parameter) const;
  void restore_gradient(std::size_t parameter);
  void restore_parameters();
  // The parameter got no gradient on this rank: see [Note: unused parameters].
  void mark_unused(std::size_t parameter);
  // While true, updates change nothing: the gradients that were reduced are dropped, and a compression
  // forgets what it sent. While no update is at work.
  void drop_updates(bool drop) { drop_updates_ = drop; }

  // See [Note: updates of the program]. While nothing is at work.
  [[nodiscard]] bool by_program() const { return by_program_; }
  // After the commit: gives parameters that no rank used an undefined gradient, and leaves those that the
  // program has replaced as they are.
  void give_gradients_to_program();
  // After the update: looks at the parameters where that was asked for, zeroes all gradients and makes them
  // lie in buckets again.
  void take_gradients_back();
  // ConfigError for a parameter that was replaced by one of another shape or type, and, with one copy, for
  // what would change it outside of an update: see [Note: written in place].
  void require_usable_parameters() const;
  // ConfigError for a parameter that was replaced since updates ahead of the commit may have begun.
  void require_held_parameters() const;
  // With one copy: gives this rank memory of its own again, as far as there is any. While nothing is at work.
  void leave_one_copy();

  // On a device: these have no gradient on any rank.
  void leave_out(optim::TensorSet parameters);
  // After reduce_gradients().
  [[nodiscard]] streams::GradientsOnStream gradients_on_stream();
  // See [Note: steps that a device gives up].
  [[nodiscard]] bool skips_on_device() const { return optimizer_->skips_on_device(); }
  void skip_updates_where(torch::Tensor found) { optimizer_->skip_where(std::move(found)); }
  // See [Note: on streams]. Null where buckets are memory of the group.
  [[nodiscard]] streams::BucketStreams* streams() const { return streams_.get(); }

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
  [[nodiscard]] BucketId bucket_of(std::size_t parameter) const { return locations_[parameter].bucket; }

  // What the optimiser remembers of each parameter, whole on every rank; vectors have the parameter's shape.
  // All ranks together, while nothing is at work. Takes room for the state of all parameters.
  [[nodiscard]] std::vector<std::optional<OptimizerState>> optimizer_state();
  // ConfigError for a vector that has another shape or type than its parameter.
  void require_state_of_shape(const std::vector<std::optional<OptimizerState>>& states) const;
  // Replaces it, while nothing is at work; `states` are the same on every rank.
  void take_over(const std::vector<std::optional<OptimizerState>>& states);

  // The memory of a compression of each parameter on this rank; none where it travels dense. While nothing
  // is at work. By parameter.
  using CompressionMemory = std::vector<std::optional<buckets::CompressionState>>;
  [[nodiscard]] CompressionMemory compression_memory() const;
  // ConfigError for the state of another model or compression.
  void set_compression_memory(const CompressionMemory& memory);
  [[nodiscard]] std::int64_t compression_step() const;
  void set_compression_step(std::int64_t step);
  [[nodiscard]] buckets::CompressionCounts compression_counts() const;  // of all buckets
  [[nodiscard]] double residual_norm() const;

  [[nodiscard]] conductor::Conductor& conductor() { return *conductor_; }
  [[nodiscard]] const conductor::Conductor& conductor() const { return *conductor_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const Grouping& grouping() const { return *grouping_; }
  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }
  [[nodiscard]] std::vector<std::int64_t> bucket_bytes() const;
  [[nodiscard]] double sent_bytes() const { return wire_->sent_bytes(); }
  // Whether a step of the bucket may end after its start, so that whoever needs it waits for the conductor.
  [[nodiscard]] bool uses_group(BucketId bucket) const { return wire_->uses_group(bucket); }

  // Says which gradients of a bucket on this rank are not finite: which elements of which tensor are NaN or
  // infinite, in words;
  // "" where none are.
  [[nodiscard]] std::string nonfinite_gradients(BucketId bucket) const;
  // Reports the memory of buckets, state and compression on this rank. While nothing is at work.
  [[nodiscard]] MemoryReport memory() const;
  // Returns a bucket, or elements of its flat buffer, for its hooks.
  [[nodiscard]] BucketGradients gradients_of(BucketId bucket, std::optional<Range> elements = {}) const;

 private:
  friend class EngineState;
  struct Location {
    BucketId bucket;
    std::size_t index;  // in the bucket's layout
  };
  // What an update changes of a bucket.
  struct Part {
    BucketId bucket;
    Range chunk;
    std::size_t index;  // in the bucket
    Range elements;     // of the flat buffer
    bool scattered;     // each rank updates a shard of it
  };
  // Runs updates and the codec, each on a thread of its own.
  class UpdateExecutor : public conductor::LaneExecutor {
   public:
    explicit UpdateExecutor(Engine& engine) : engine_(engine) {}
    conductor::Started start(Instance which, const Step& step) override;

   private:
    Engine& engine_;
  };
  std::span<const Part> add_parts(BucketId bucket, const buckets::BucketLayout& layout);
  [[nodiscard]] Range own_range(const Part& part) const;    // that this rank updates
  void update(const Update& work, std::int64_t iteration);  // aborts the group when it throws
  void update_part(const Part& part, std::int64_t iteration);
  [[nodiscard]] Range elements_of(const Communicate& work) const {
    return buckets::part_of(work.chunk, grouping_->buckets()[work.bucket].bytes,
                            buckets_[work.bucket].layout().elements, buckets_[work.bucket].layout().dtype,
                            group_.size());
  }
  struct Place {
    BucketId bucket;
    Range elements;  // of its flat gradients
  };
  [[nodiscard]] std::vector<Place> held_places() const, counted_places() const;  // [Note: counted and held]
  void code(const Work& work);  // encodes or decodes; aborts the group when it throws
  [[nodiscard]] std::vector<std::int64_t> rows_of_tensors(const std::vector<std::size_t>& order) const;
  // On a device: copies of an encoded bucket in memory of the group. None elsewhere.
  struct HostCopies {
    std::unique_ptr<streams::FlatHostCopy> gradients;
    std::unique_ptr<streams::FlatHostCopy> parameters;  // where the compression reads them
  };
  // The bucket's codec, where it travels encoded; all ranks together.
  [[nodiscard]] std::shared_ptr<buckets::EncodedBucket> make_encoded(const BucketStorage& bucket,
                                                                     const std::vector<std::int64_t>& rows);
  // Of a vector on a device, in memory of the group, which `view` becomes; all ranks together.
  [[nodiscard]] std::unique_ptr<streams::FlatHostCopy> copy_to_host(const torch::Tensor& vector, View& view);
  void write_state(const std::vector<std::optional<OptimizerState>>& states);
  void remember_versions();
  // The type of the vectors that the optimiser keeps of a parameter.
  [[nodiscard]] at::ScalarType state_type(at::ScalarType parameter) const {
    return widening_.widens(parameter) ? at::kFloat : parameter;
  }
  [[nodiscard]] optim::ShardedOptimizer::Outlines outlines();
  // The optimiser's vector of this name over the whole bucket.
  [[nodiscard]] torch::Tensor gather_vector(BucketId bucket, const std::string& name);
  [[nodiscard]] const buckets::TensorPlacement& place_of(std::size_t parameter) const {
    const auto [bucket, index] = locations_[parameter];
    return buckets_[bucket].layout().placements[index];
  }
  [[nodiscard]] optim::ReducedGradients find_reduced_gradients() const;
  void require_finite_parameters(const Part& part, std::int64_t iteration) const;
  void require_finite_parameters(std::int64_t iteration) const;
  void require_none(const std::string& nonfinite, std::int64_t iteration) const;
  void note_parameter_storages();  // of parameters that stay where they are
  [[nodiscard]] TensorId tensor_of(std::size_t parameter) const { return place_of(parameter).tensor; }

  Group group_;
  const bool one_copy_, by_program_;
  const optim::Widening widening_;
  metrics::BucketHooks* const hooks_;
  const bool check_parameters_;
  const std::int64_t earlier_iterations_;
  std::vector<TrainedParameter>& parameters_;
  std::vector<std::uint32_t> versions_;  // by parameter, with one copy
  Workload workload_;
  std::unique_ptr<Grouping> grouping_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<Location> locations_;  // by parameter
  std::vector<Part> parts_;          // those of a bucket side by side, buckets ascending
  std::vector<BucketStorage> buckets_;
  std::unordered_map<const void*, Storage> storages_;
  std::optional<Compression> compression_;
  std::vector<std::shared_ptr<buckets::EncodedBucket>> encoded_;  // by bucket; null for a dense one
  std::vector<HostCopies> copies_;                                // by bucket, of those that are encoded
  std::unique_ptr<optim::ShardedOptimizer> optimizer_;
  std::optional<optim::ReducedGradients> reduced_;  // once they were asked for
  optim::TensorSet left_out_;                       // parameters
  std::unique_ptr<streams::BucketStreams> streams_;
  std::unique_ptr<streams::BucketQueue> queue_;  // of streams_
  std::atomic<bool> drop_updates_ = false;
  UpdateExecutor update_executor_{*this};
  std::unique_ptr<buckets::BucketWire> wire_;
  std::unique_ptr<conductor::Conductor> conductor_;
  std::unique_ptr<conductor::SerialLane> update_lane_, codec_lane_;  // last: end first
};

}  // namespace dear::train
