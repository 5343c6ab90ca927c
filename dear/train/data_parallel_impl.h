#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
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
// One that got no gradient in the first iteration may get one later, so nothing that holds it may be sent
// before step(). Such parameters form layers of their own, first in forward order, so that their bucket is
// the last to be reduced and holds up no other. What is done with their gradients: [Note: unused parameters].
//
// [Note: dropped gradients] A program that drops gradients (zero_grad() sets them to none) gives up the step
// that they were for. Where nothing was sent, that is forgotten here. Where a layer was sent, the next
// backward pass finds the gradients gone and completes that step without an update, as discard_step() does:
// every rank in the same place, which a barrier proves.
//
// [Note: second order] A backward pass with create_graph makes gradients that a later pass of the same step
// may differentiate. Such a pass sends nothing, and a gradient goes into its bucket only when its layer is
// sent: until then it stays the tensor that the program sees, graph and all.
//
// [Note: failures] An exception that leaves a call of ours after other ranks may count on it ends this object
// and the group: peers learn the reason at once, later calls throw the same again, and the destructor waits
// for nothing. What all ranks refuse alike (a fusion) changes nothing.
class DataParallel::Impl : public train::Watcher {
 public:
  Impl(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
       DataParallelOptions options);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void step();
  void discard_step();
  void synchronize();
  void regroup(Fusion fusion);
  void defer() { ++deferrals_; }
  void resume() { --deferrals_; }

  [[nodiscard]] const train::Engine& engine() const;  // ScheduleError before the first step
  [[nodiscard]] DataParallelStatistics statistics() const;
  [[nodiscard]] DataParallelStatistics totals() const;  // steps that were given up included
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
  class Hook {
   public:
    Hook(const at::Tensor& parameter, std::function<void()> arrived);
    ~Hook();
    Hook(Hook&&) = default;
    Hook& operator=(Hook&&) = delete;

   private:
    Accumulator accumulator_;  // kept alive, or the hook is lost
    std::uintptr_t key_;
  };
  // Seconds by iteration, whichever buckets were in force.
  struct Measurements {
    std::map<LayerId, train::ByIteration> forward, backward;
    train::ByIteration updates;
    bool sharded = false;  // updates were of shards
  };
  // All ranks together: when `check` throws on one rank, every rank throws, at once.
  void check_together(const std::function<void()>& check);
  void fail(const std::exception_ptr& error) noexcept;  // see [Note: failures]
  template <typename Act>
  void or_fail(Act act) {
    try {
      act();
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
  }
  void require_unchanged() const;
  void learn(const at::Tensor& tensor);
  void learn_arrival(std::size_t parameter, bool creates_graph);
  void learn_layers();
  void commit();
  static void wait_for(Conductor& conductor, const train::Engine::Place& place);
  void plan();
  void tune();
  void change_to(const Fusion& fusion, double begin_seconds);
  void end_tuning();
  // `decision`: of the tuning that goes on in the new engine.
  void replace_engine(Fusion fusion, const std::string& why, const View& decision = {});
  [[nodiscard]] Trace recorded();
  void add_measurements(Measurements& all) const;  // of the present engine
  [[nodiscard]] Workload measured();
  [[nodiscard]] std::unique_ptr<train::Engine> make_engine(const View& decision = {});
  void agree_on_order(std::vector<std::size_t>& order, std::vector<bool>& used) const;
  void backward_pass_began(std::size_t parameter);
  void backward_pass_ended();
  [[nodiscard]] bool were_dropped(std::size_t but) const;
  void forget_dropped(std::size_t but);
  void discard();
  void forget_arrivals();
  void mark_unused();
  [[noreturn]] void refuse_late(std::size_t parameter) const;
  void take_over_replaced();
  void await_last_step();
  void agree_on_copies();
  void leave_one_copy() noexcept;
  void require_same_freezing() const;
  void start_iteration();
  [[nodiscard]] bool programs_thread() const {
    return std::this_thread::get_id() == program_.load(std::memory_order_relaxed);
  }

  const int unwinding_ = std::uncaught_exceptions();  // of exceptions that are none of ours
  Group group_;
  torch::optim::Optimizer& optimizer_;
  DataParallelOptions options_;
  Fusion fusion_;  // in force
  train::ModelScan scanned_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::exception_ptr failure_;
  std::atomic<std::thread::id> program_ = std::this_thread::get_id();  // the one that calls step()

  std::mutex learning_;                  // operators of any thread are learned from
  std::vector<std::size_t> first_uses_;  // parameters in the order of their first use
  std::vector<bool> seen_;
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<std::optional<WeakTensor>> learned_from_;  // by parameter: its gradient, last time
  std::vector<std::size_t> order_;                       // by first use, on every rank alike
  std::vector<LayerId> layer_of_;                        // by parameter
  std::vector<int> arrivals_,
      expected_;  // by parameter: gradients in this iteration, and at most in any before
  std::vector<int> missing_, layer_sizes_;   // by layer: parameters that have not got all; all
  std::vector<bool> used_;                   // by parameter: a gradient arrived since the last step
  std::optional<std::size_t> last_arrived_;  // since the last step
  std::optional<std::size_t> late_;          // a gradient that arrived after its layer was sent
  int deferrals_ = 0;
  int backward_pass_ = -1;  // the graph task that is running, or -1
  bool ahead_ = false;      // updates of this step may have begun
  std::int64_t discarded_ = 0;

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
  std::optional<train::StateElsewhere> state_elsewhere_;  // while there is an engine
  std::atomic<train::Engine*> observed_engine_{nullptr};  // the same, for operators of any thread
  train::Observation observation_{*this};
  std::vector<Hook> hooks_;  // last: end first, also when the constructor throws
};

}  // namespace dear
