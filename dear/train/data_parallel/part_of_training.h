#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"

namespace dear {

class DataParallel;

namespace train {

// A DataParallel as a Kfac or Rounds see it, which are a part of its training: they change the means of
// gradients before step(), or parameters after it. The DataParallel outlives this object.
class PartOfTraining {
 public:
  explicit PartOfTraining(DataParallel& dp) : dp_(dp) {}
  ~PartOfTraining();
  PartOfTraining(const PartOfTraining&) = delete;
  PartOfTraining& operator=(const PartOfTraining&) = delete;

  [[nodiscard]] const Group& group() const;
  // ConfigError where gradients cannot be changed before step(), or ranks have run out of data in a Join.
  void require_usable() const;
  // ConfigError where another Kfac has claimed this DataParallel and lives.
  void claim();
  // Proves that every rank makes a Kfac: MismatchError on every rank where one makes another call.
  void meet() const;
  // ConfigError where there is nothing to precondition: no gradient arrived since the last step of the
  // DataParallel (on a rank that has samples), or stepped() was called since.
  void require_new_gradients() const;
  void stepped();  // gradients are preconditioned
  // For a call between a step() and the next backward, ConfigError elsewhere: waits until nothing is on its
  // way in the group.
  void settle_for(const char* call) const;
  // Ranks compare the numbers: MismatchError on each where they differ.
  void reduce_gradients(double learning_rates, double loss_scale) const;
  [[nodiscard]] std::int64_t steps_given_up() const;  // so far, the same on every rank
  // Ends the training here and on the peers, with this error for every later call.
  void fail(const std::exception_ptr& error) const;
  // The learning rate of the parameter group that holds the weight; none where the optimiser does not say it.
  [[nodiscard]] std::optional<double> learning_rate_of(const torch::Tensor& weight) const;
  // Gives what is thrown in a backward pass to a binding of another language.
  void translate(const std::exception_ptr& error) const;

  // ConfigError where parameters have copies elsewhere, so that nobody else may write them between steps.
  void require_writable_parameters(const char* whose) const;
  // What travels beside the engine, so far: DataParallel::statistics() and metrics count it, too. `counts` is
  // called as long as the DataParallel lives.
  struct Counts {
    double exposed_seconds = 0, communication_seconds = 0, bytes = 0;
  };
  void add_counts(std::function<Counts()> counts) const;

  [[nodiscard]] bool records_trace() const;
  // Adds spans to DataParallel::trace().
  void add_spans(const void* owner, std::function<std::vector<Span>()> spans) const;
  void remove_spans(const void* owner) const;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  [[nodiscard]] std::int64_t steps_ended() const;  // a number that each step of the DataParallel raises
  [[nodiscard]] bool holds_preconditioned() const;

  DataParallel& dp_;
  bool claimed_ = false;
  std::optional<std::int64_t> stepped_at_;  // steps_ended(), when stepped() was called last
  std::vector<WeakTensor> preconditioned_;  // then, of a rank alone, whose dropped gradients nobody sees
};

}  // namespace train
}  // namespace dear
