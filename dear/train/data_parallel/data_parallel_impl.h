#pragma once

// size: what one training holds, and the calls of DataParallel, in one class

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dear/comm/agreement/attendance.h"
#include "dear/comm/agreement/sum_over_ranks.h"
#include "dear/train/autograd/gradient_arrivals.h"
#include "dear/train/autograd/gradient_hook.h"
#include "dear/train/autograd/iteration_state.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/bucket_changes.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/run_record.h"
#include "dear/train/data_parallel/watching.h"
#include "dear/train/engine/engine.h"
#include "dear/train/model/buffer_exchange.h"
#include "dear/train/model/learning.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/kept_state.h"
#include "dear/train/optim/restored_state.h"

namespace dear {

// [Note: failures] An exception that leaves a call of ours after other ranks may count on it ends this object
// and the group: peers learn the reason at once, later calls throw the same again, and the destructor waits
// for nothing. What all ranks refuse alike (a fusion) changes nothing.
class DataParallel::Impl : public autograd::OperatorObserver {
 public:
  Impl(const Model& model, std::unique_ptr<Optimizer>, const Group& group, DataParallelOptions options);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void step();
  bool step(const StepOptions& options);
  double clip_gradients_by_norm(double max_norm, const NormOptions& options);
  torch::Tensor clip_gradients(double max_norm, const NormOptions& options);
  void clip_gradients_by_value(double limit);
  bool unscale_gradients(double loss_scale);
  torch::Tensor unscale_gradients_by(const torch::Tensor& inverse_scale);
  void step_unless(const torch::Tensor& nonfinite, const torch::Tensor& inverse_scale);
  struct KfacNumbers {  // which ranks compare
    double learning_rates, loss_scale;
  };
  void reduce_gradients(const std::optional<KfacNumbers>& kfac = {});
  double mean_over_ranks(double mine);
  void discard_step();
  void synchronize();
  void broadcast_buffers();
  void wait();
  [[nodiscard]] bool gradients_arrived() const;
  [[nodiscard]] bool has_stepped() const { return engine_ != nullptr; }
  [[nodiscard]] bool has_state() const { return engine_ && !by_program(); }
  // Whether the program's optimiser updates the parameters and keeps its state: see [Note: alone] and
  // [Note: updates of the program].
  [[nodiscard]] bool by_program() const { return alone_ || update_rules_.by_program(); }
  void regroup(Fusion fusion);
  void rebuild(const Model& model);
  void set_source(std::function<Model()> source) { source_ = std::move(source); }
  [[nodiscard]] std::vector<StateOfParameter> optimizer_state();
  void load_optimizer_state(const std::vector<StateOfParameter>& states);
  [[nodiscard]] CompressionReport compression_report();
  [[nodiscard]] CompressionStates compression_states();
  void load_compression_states(const CompressionStates& states);
  void defer() { arrivals_.defer(); }
  void resume() { arrivals_.resume(); }
  void samples(std::int64_t count);
  [[nodiscard]] const Group& group() const { return group_; }  // for a Join, as the six that follow
  agreement::Attendance& attendance() { return attendance_; }
  [[nodiscard]] std::int64_t settle_for_join();  // returns the bytes of the optimiser's options
  std::shared_ptr<agreement::RollCall> roll_call(std::int64_t text_bytes);
  void require_all_stepped();
  void begin_step();
  void shadow(const agreement::Announcement& what);  // does as the others do

  [[nodiscard]] const train::Engine& engine() const;  // ScheduleError before the first step
  [[nodiscard]] DataParallelStatistics statistics() const;
  [[nodiscard]] const TuningProgress* tuning() const { return changes_->progress(); }
  [[nodiscard]] Trace trace();
  [[nodiscard]] Workload profile();
  [[nodiscard]] Watch& watch() { return watching_.watch(); }
  bool touched(const at::Tensor& tensor) noexcept override;
  void backward_node() noexcept override;
  void throw_if_failed() override;

 private:
  friend class checkpoint::TrainingState;
  friend class train::PartOfTraining;
  void fail(const std::exception_ptr& error) noexcept;  // see [Note: failures]
  template <typename Act>
  void or_fail(Act act) {
    try {
      act();
    } catch (...) {
      fail(std::current_exception());
      state_.throw_if_failed();
    }
  }
  [[nodiscard]] bool programs_thread() const {
    return std::this_thread::get_id() == program_.load(std::memory_order_relaxed);
  }
  // Updates of this step may have begun.
  [[nodiscard]] bool updates_ahead() const { return state_.sends() && engine_->updates_ahead(); }

  void take_step();
  void step_alone();
  void update_by_program();
  void choose_policy();  // for who makes the updates
  [[nodiscard]] bool averages_first_gradients() const;
  void average_first_gradients();  // see [Note: gradients of the first iteration]
  void drop_gradients();
  void require_unchanged() const;
  void require_step();  // what step() refuses, and the layers
  void learn_layers();
  void commit();
  void prepare_commit();
  void make_first_engine();
  void make_whole();       // on every rank, gradients that are reduced
  void close_gradients();  // see [Note: closed]
  void require_changeable_gradients(const char* call) const;
  void require_clippable(double max_norm, const NormOptions& options) const;
  optim::ReducedGradients& final_gradients();
  void require_finite_norm(double norm) const;
  void scale_gradients(double loss_scale);
  void change_on_streams(agreement::CallMade call,
                         const std::function<void(streams::GradientsOnStream&)>& change);
  double sum_over_ranks(const agreement::CallMade& call, double mine,
                        agreement::SumOverRanks::As as = agreement::SumOverRanks::As::sum);
  void take_over_replaced();
  [[nodiscard]] bool gradients_are_whole() const;
  void see_gradient(std::size_t parameter);  // see [Note: gradients written in place]
  void require_unwritten() const;
  void await_last_step();
  void wait_for_all();
  void wait_for(train::Engine& engine, const train::Engine::Storage& place) const;
  class OnStreams;  // see [Note: on streams]
  [[nodiscard]] bool on_streams() const { return options_.streams && !alone_; }
  void follow_program();                  // what is sent next waits for what the program has enqueued
  [[nodiscard]] bool nothing_to_await();  // for no operator of any thread
  void blocking(const std::function<void()>& wait) const;  // see DataParallelOptions::around_wait
  [[nodiscard]] double clock_now();                        // seconds, or a mark: [Note: times of a device]
  [[nodiscard]] Workload measured() const;

  // Who takes part in a step: [Note: attendance].
  void attend(const std::function<void()>& act);
  void require_everyone();
  void announce(const agreement::Announcement& what, const std::string& text = {});
  void weigh(std::size_t parameter);
  void shadow_backward();
  void gradient_arrived(const std::size_t& parameter);  // from the hook
  void backward_pass_began(const std::size_t& parameter, int pass);
  void backward_pass_ended();
  void hook_ran(const std::size_t& parameter);
  void complete(std::size_t parameter);
  [[noreturn]] void refuse_late(std::size_t parameter) const;
  [[nodiscard]] bool were_dropped(std::size_t but) const;
  void forget_dropped(std::size_t but);
  void forget_arrivals();
  void discard();
  [[nodiscard]] bool all_arrived(BucketId bucket) const;
  void look_at_complete_buckets(LayerId layer);  // which is the last of them to be sent
  void look_at_other_buckets();
  [[nodiscard]] bool give_up_nonfinite();  // the step, on all ranks, where a check found some on any
  [[nodiscard]] metrics::StepSample sample() const;
  [[nodiscard]] MemoryReport memory() const;
  void settle_for(const char* call);

  // Buckets. `decision`: of the tuning that goes on in the new engine.
  [[nodiscard]] std::unique_ptr<train::Engine> make_engine(const View& decision = {});
  void choose_buckets();
  void replace_engine(Fusion fusion, const std::string& why, const View& decision = {});
  void agree_on_copies();
  void exchange_buffers();  // of the scan
  bool buffers_travel();    // looks them up
  void take_buffers();      // that were looked up: all ranks together
  void agree_on_compression();
  train::Engine& compressing_engine(const char* call);
  void leave_one_copy() noexcept;

  // What is trained: see [Note: trained anew].
  class Anew;
  void follow_changes();
  void set_trained();
  [[nodiscard]] optim::TensorSet in_buckets() const;  // parameters
  void require_same_model() const;
  void require_no_join(const char* what) const;  // in whose steps a rank without data could not follow

  const int unwinding_ = std::uncaught_exceptions();  // of exceptions that are none of ours
  Group group_;
  const std::unique_ptr<Optimizer> optimizer_;
  DataParallelOptions options_;
  const bool alone_;  // see [Note: alone]
  std::int64_t steps_alone_ = 0;
  optim::ReducedGradients gradients_alone_;
  bool updates_in_backward_ = false;  // the policy that was asked for, also where one rank trains
  bool whole_gradients_ = false;      // on every rank, since reduce_gradients()
  bool whole_first_gradients_ = false;
  int first_pass_ = -1;  // the last of those that end with an exchange
  struct Seen {
    const c10::TensorImpl* gradient = nullptr;  // that arrived in this iteration in a pass that counts
    std::int64_t version = 0;                   // that it had then
  };
  std::vector<Seen> seen_;  // by trained parameter; see [Note: gradients written in place]
  agreement::SumOverRanks sums_{group_};
  Fusion fusion_;                  // in force
  std::function<Model()> source_;  // of the model as it is, where something can say
  train::ModelScan scanned_;
  train::UpdateRules update_rules_;
  optim::KeptState kept_;
  optim::TensorSet idle_;  // on streams: see [Note: idle parameters]
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::atomic<std::thread::id> program_ = std::this_thread::get_id();  // the one that calls step()

  agreement::Attendance attendance_;
  autograd::IterationState state_;
  std::optional<train::Learning> learning_;
  train::Learning::Layers layers_;  // empty while learning
  autograd::GradientArrivals arrivals_;
  std::optional<model::BufferExchange> buffer_exchange_;  // none where no buffers are sent
  std::optional<train::BucketChanges> changes_;
  buckets::CompressionCounts earlier_compression_;  // of engines that are gone
  std::atomic<bool> backward_seen_{false};          // in this pass, while recording
  bool recording_ = false;                          // for the user, or because buckets are to be chosen by it
  train::RunRecord record_;
  train::Watching watching_{group_, options_.check_gradients,
                            Watch::Source{[this] { return sample(); }, [this] { return memory(); },
                                          [this](const char* call) { settle_for(call); }}};

  std::unique_ptr<optim::RestoredState> restored_;        // until the first step
  std::unique_ptr<train::Engine> engine_;                 // null while learning
  std::atomic<train::Engine*> observed_engine_{nullptr};  // the same, for operators of any thread
  autograd::ObserverRegistration registration_{*this};
  // Last: end first, also when the constructor throws.
  autograd::GradientHooks hooks_{[this](const std::size_t& parameter) { hook_ran(parameter); }};
};

}  // namespace dear
