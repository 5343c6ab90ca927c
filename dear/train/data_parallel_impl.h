#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "dear/train/data_parallel.h"
#include "dear/train/engine.h"
#include "dear/train/layer_clock.h"
#include "dear/train/live_tuning.h"
#include "dear/train/model_scan.h"
#include "dear/train/operator_observer.h"
#include "dear/train/tensor_broadcast.h"

namespace dear {

// [Note: the first step] Until the first step() the program runs as it is, observed: the order in which
// operators first read parameters becomes the order of layers (rank 0's, on every rank), and the number of
// times that a parameter's gradient arrives is how many backward passes make one step. Then the engine is
// made, and every gradient of that first iteration is reduced at once; from the second on, a layer's
// gradients go as soon as they have all arrived.
//
// [Note: unused parameters] One that got no gradient in the first iteration may get one later, so nothing
// that holds it may be sent before step(). Such parameters form layers of their own, first in forward order,
// so that their bucket is the last to be reduced and holds up no other.
class DataParallel::Impl : public train::Watcher {
 public:
  Impl(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
       DataParallelOptions options);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void step();
  void synchronize();
  void regroup(Fusion fusion);
  void defer() { ++deferrals_; }
  void resume() { --deferrals_; }

  [[nodiscard]] const train::Engine& engine() const;  // ScheduleError before the first step
  [[nodiscard]] DataParallelStatistics statistics() const;
  [[nodiscard]] const TuningProgress* tuning() const { return tuning_ ? &tuning_->report() : nullptr; }
  [[nodiscard]] Trace trace();
  [[nodiscard]] Workload profile();

  void gradient_arrived(std::size_t parameter);  // from the hook

  void touched(const at::Tensor& tensor) noexcept override;
  void backward_node() noexcept override;
  void throw_if_failed() override;

 private:
  // A std::shared_ptr before PyTorch 2.13, a c10::intrusive_ptr since.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));
  struct Hook {
    Accumulator accumulator;  // kept alive, or the hook is lost
    std::uintptr_t key;
  };
  // Seconds by iteration, whichever buckets were in force.
  struct Measurements {
    std::map<LayerId, train::ByIteration> forward, backward;
    train::ByIteration updates;
    bool sharded = false;  // updates were of shards
  };
  void learn(const at::Tensor& tensor);
  static void wait_for(Conductor& conductor, const train::Engine::Place& place);
  void build();
  void plan();
  void tune();
  void change_to(const Fusion& fusion, double begin_seconds);
  void end_tuning();
  void replace_engine(Fusion fusion, const std::string& why);
  [[nodiscard]] Trace recorded();
  void add_measurements(Measurements& all) const;  // of the present engine
  [[nodiscard]] Workload measured();
  [[nodiscard]] std::unique_ptr<train::Engine> make_engine();
  void agree_on_order(std::vector<std::size_t>& order, std::vector<bool>& used);
  void backward_pass_began();
  void backward_pass_ended();
  void take_over_replaced();
  void await_last_step();
  void agree_on_copies();
  void leave_one_copy() noexcept;
  void require_same_freezing() const;
  void start_iteration();
  [[nodiscard]] bool programs_thread() const { return std::this_thread::get_id() == program_; }

  Group group_;
  torch::optim::Optimizer& optimizer_;
  DataParallelOptions options_;
  Fusion fusion_;  // in force
  train::ModelScan scanned_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::vector<Hook> hooks_;
  std::thread::id program_ = std::this_thread::get_id();

  std::vector<std::size_t> first_uses_;  // parameters in the order of their first use, while learning
  std::vector<bool> used_;
  std::vector<std::size_t> order_;  // parameters by first use, on every rank alike
  std::vector<LayerId> layer_of_;   // by parameter
  std::vector<int> arrivals_,
      expected_;  // by parameter: gradients in this iteration, and at most in any before
  std::vector<int> missing_, layer_sizes_;  // by layer: parameters that have not got all; all
  int deferrals_ = 0;
  bool in_backward_pass_ = false;
  bool gradients_since_step_ = false;
  bool ahead_ = false;  // updates of this step may have begun

  std::unique_ptr<train::TensorBroadcast> buffer_broadcast_;
  bool plans_ = false;                         // is still to plan, or to begin tuning
  bool recording_ = false;                     // for the user, or to plan
  std::unique_ptr<train::LiveTuning> tuning_;  // null where nothing is tuned
  std::optional<train::Engine::Profile> profile_;
  train::LayerClock clock_;
  // Of the engines before this one.
  DataParallelStatistics earlier_{};
  std::vector<Span> earlier_spans_;
  Measurements earlier_measurements_;
  std::unique_ptr<train::Engine> engine_;
  std::atomic<train::Engine*> observed_engine_{nullptr};  // the same, for operators of any thread
  train::Observation observation_{*this};                 // last: ends first
};

}  // namespace dear
