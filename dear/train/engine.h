#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>

#include "dear/collective/group.h"
#include "dear/exec/conductor.h"
#include "dear/exec/serial_lane.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/schedule.h"
#include "dear/train/bucket_storage.h"
#include "dear/train/elementwise_optimizer.h"
#include "dear/train/model_scan.h"
#include "dear/wire/bucket_wire.h"
#include "dear/workload/workload.h"

namespace dear::train {

// One grouping and schedule in force: buckets in memory, the optimiser on their shards, the wire, the update
// lane and the conductor that joins them.
class Engine {
 public:
  struct Options {
    std::string policy;
    Fusion fusion;
    bool record = false;
  };
  // `order`: indices into `parameters` by first use, the same on every rank; `layer_of[i]`: the layer of
  // parameters[i], numbered in forward order. Moves parameters and gradients into buckets: all ranks
  // together, none computing.
  Engine(Group group, std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
         const std::vector<LayerId>& layer_of, const torch::optim::Optimizer& optimizer,
         const Options& options);
  ~Engine();  // aborts the group when the program is unwinding, else waits for what is at work
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // [program]
  void capture_options(const torch::optim::Optimizer& optimizer);
  // Parameter i's view, or its gradient's, was replaced since: take the values over. False, and nothing done,
  // for a gradient whose reduction has begun.
  [[nodiscard]] bool holds_gradient(std::size_t parameter) const;
  void restore_gradient(std::size_t parameter);
  void restore_parameters();

  // Which bucket an operator's input belongs to.
  enum class Kind : std::uint8_t { parameters, gradients };
  struct Place {
    BucketId bucket;
    Kind kind;
  };
  [[nodiscard]] const Place* find(const void* storage) const {
    const auto found = places_.find(storage);
    return found == places_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] BucketId bucket_of(std::size_t parameter) const { return locations_[parameter].bucket; }

  [[nodiscard]] Conductor& conductor() { return *conductor_; }
  [[nodiscard]] const Conductor& conductor() const { return *conductor_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const Grouping& grouping() const { return *grouping_; }
  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }
  [[nodiscard]] std::int64_t parameter_bytes() const;

 private:
  struct Location {
    BucketId bucket;
    std::size_t index;  // in the bucket's layout
  };
  class UpdateSide : public Side {
   public:
    explicit UpdateSide(Engine& engine) : engine_(engine) {}
    void start(Instance which, const Step& step) override;

   private:
    Engine& engine_;
  };
  void update(const Update& work);
  [[nodiscard]] static Workload describe(const std::vector<TrainedParameter>& parameters,
                                         const std::vector<std::size_t>& order,
                                         const std::vector<LayerId>& layer_of);

  Group group_;
  std::vector<TrainedParameter>& parameters_;
  Workload workload_;
  std::unique_ptr<Grouping> grouping_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<Location> locations_;  // by parameter
  std::vector<BucketStorage> buckets_;
  std::unordered_map<const void*, Place> places_;
  std::unique_ptr<ElementwiseOptimizer> optimizer_;
  UpdateSide update_side_{*this};
  std::unique_ptr<BucketWire> wire_;
  std::unique_ptr<Conductor> conductor_;
  std::unique_ptr<SerialLane> update_lane_;  // last: ends first
};

}  // namespace dear::train
