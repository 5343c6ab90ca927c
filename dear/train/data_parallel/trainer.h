#pragma once

// size: what one training holds, for its parts

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dear/comm/agreement/participation.h"
#include "dear/train/autograd/gradient_arrivals.h"
#include "dear/train/autograd/gradient_hook.h"
#include "dear/train/autograd/iteration_state.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/backward_passes.h"
#include "dear/train/data_parallel/bucket_changes.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/engines.h"
#include "dear/train/data_parallel/gradient_changes.h"
#include "dear/train/data_parallel/model_changes.h"
#include "dear/train/data_parallel/monitoring.h"
#include "dear/train/data_parallel/part_of_training.h"
#include "dear/train/data_parallel/reports.h"
#include "dear/train/data_parallel/run_record.h"
#include "dear/train/data_parallel/shard_changes.h"
#include "dear/train/data_parallel/shared_buffers.h"
#include "dear/train/data_parallel/stragglers.h"
#include "dear/train/data_parallel/uneven_inputs.h"
#include "dear/train/data_parallel/verifier.h"
#include "dear/train/data_parallel/waits.h"
#include "dear/train/engine/engine.h"
#include "dear/train/engine/update_rules.h"
#include "dear/train/model/buffer_exchange.h"
#include "dear/train/model/learning.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/kept_state.h"
#include "dear/train/optim/restored_state.h"
#include "dear/train/streams/guard.h"

namespace dear::train {

// One training: what it holds, and its steps. Its parts have the rest, each a class with a header; they look
// into this object, and nobody outside of this folder does.
//
// [Note: failures] An exception that leaves a call of ours after other ranks may count on it ends this object
// and the group: peers learn the reason at once, later calls throw the same again, and the destructor waits
// for nothing. What all ranks refuse alike (a fusion) changes nothing.
class Trainer : public autograd::OperatorObserver {
 public:
  Trainer(const Model& model, std::unique_ptr<Optimizer>, const Group& group, DataParallelOptions options);
  ~Trainer() override;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  [[nodiscard]] static Trainer& of(DataParallel& dp) { return *dp.trainer_; }

  void step();
  bool step(const StepOptions& options);
  void step_unless(const torch::Tensor& nonfinite, const torch::Tensor& inverse_scale);
  void discard_step();
  void synchronize();
  void wait();
  [[nodiscard]] bool has_stepped() const { return engine_ != nullptr; }
  [[nodiscard]] bool has_state() const { return engine_ && !by_program(); }
  // Whether the program's optimiser updates the parameters and keeps its state: see [Note: alone] and
  // [Note: updates of the program].
  [[nodiscard]] bool by_program() const { return alone_ || update_rules_.by_program(); }
  // Before the first step(): without this guard, so that a test shows what it is for.
  void go_without(streams::Guard guard) { without_guard_ = guard; }
  // It ends where no other rank may end its own, as when a garbage collector does it: it waits for none. Its
  // group lives on for those that come.
  void ends_alone() { ends_alone_ = true; }
  void defer() { arrivals_.defer(); }
  void resume() { arrivals_.resume(); }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] agreement::Participation& participation() { return participation_; }
  [[nodiscard]] const Engine& engine() const;  // ScheduleError before the first step
  [[nodiscard]] const TuningProgress* tuning() const { return changes_->progress(); }
  [[nodiscard]] Watch& watch() { return monitoring_.watch(); }
  [[nodiscard]] bool verifies() const { return options_.verify_every > 0; }
  bool touched(const at::Tensor& tensor) noexcept override;
  void backward_node() noexcept override;
  void throw_if_failed() override;

 private:
  friend class BackwardPasses;
  friend class Engines;
  friend class GradientChanges;
  friend class ModelChanges;
  friend class StreamTraining;
  friend class PartOfTraining;
  friend class Rebuilding;
  friend class Reports;
  friend class ShardChanges;
  friend class SharedBuffers;
  friend class Stragglers;
  friend class UnevenInputs;
  friend class Waits;
  friend class TrainingState;

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
  // Updates of this step may have begun.
  [[nodiscard]] bool updates_ahead() const { return state_.sends() && engine_->updates_ahead(); }

  void take_step();
  void step_alone();
  void update_by_program();
  void choose_policy();  // for who makes the updates
  void require_unchanged() const;
  void require_step();  // what step() refuses, and the layers
  void learn_layers();
  void commit();
  void prepare_commit();
  void close_gradients();  // see [Note: closed]
  void discard();
  [[nodiscard]] bool on_streams() const { return options_.streams && !alone_; }
  void settle_for(const char* call);

  const int unwinding_ = std::uncaught_exceptions();  // of exceptions that are none of ours
  bool ends_alone_ = false;
  Group group_;
  const std::unique_ptr<Optimizer> optimizer_;
  DataParallelOptions options_;
  streams::Guard without_guard_ = streams::Guard::none;
  const bool alone_;  // see [Note: alone]
  std::int64_t steps_alone_ = 0;
  std::vector<std::string> policies_;  // that may come into force: one, or the candidates of a choice
  bool updates_in_backward_ = false;   // under one of those that were asked for, also where one rank trains
  bool whole_gradients_ = false;       // on every rank, since reduce_gradients()
  struct Seen {
    const c10::TensorImpl* gradient = nullptr;  // that arrived in this iteration in a pass that counts
    std::int64_t version = 0;                   // that it had then
  };
  std::vector<Seen> seen_;  // by trained parameter; see [Note: gradients written in place]
  Fusion fusion_;           // in force
  ModelScan scanned_;
  UpdateRules update_rules_;
  optim::KeptState kept_;
  optim::TensorSet idle_;  // on streams: see [Note: idle parameters]
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::atomic<std::thread::id> program_ = std::this_thread::get_id();  // the one that calls step()

  agreement::Participation participation_;
  autograd::IterationState state_;
  std::optional<Learning> learning_;
  Learning::Layers layers_;  // empty while learning
  autograd::GradientArrivals arrivals_;
  std::optional<model::BufferExchange> buffer_exchange_;  // none where no buffers are sent
  std::optional<BucketChanges> changes_;
  buckets::CompressionCounts earlier_compression_;  // of engines that are gone
  std::atomic<bool> backward_seen_{false};          // in this pass, while recording
  bool recording_ = false;                          // for the user, or because buckets are to be chosen by it
  RunRecord record_;
  std::vector<std::function<PartOfTraining::Counts()>> counts_beside_;
  std::optional<Verifier> verifier_;
  Monitoring monitoring_{
      group_, options_.check_gradients,
      Watch::Source{[this] { return reports.sample(); }, [this] { return reports.memory(); },
                    [this](const char* call) { settle_for(call); }}};

 public:
  BackwardPasses passes{*this};
  Engines engines{*this};
  GradientChanges gradient_changes{*this};
  ModelChanges model_changes{*this};
  Reports reports{*this};
  ShardChanges shard_changes{*this};
  SharedBuffers shared_buffers{*this};
  Stragglers stragglers{*this};
  UnevenInputs uneven_inputs{*this};
  Waits waits{*this};

 private:
  std::unique_ptr<optim::RestoredState> restored_;  // until the first step
  std::unique_ptr<Engine> engine_;                  // null while learning
  std::atomic<Engine*> observed_engine_{nullptr};   // the same, for operators of any thread
  autograd::ObserverRegistration registration_{*this};
  // Last: end first, also when the constructor throws.
  autograd::GradientHooks hooks_{[this](const std::size_t& parameter) { passes.hook_ran(parameter); }};
};

}  // namespace dear::train
