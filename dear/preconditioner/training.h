#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/collective/group.h"
#include "dear/trace/trace.h"

namespace dear {

class DataParallel;

namespace preconditioner {

// What a Kfac needs of the DataParallel whose gradients it changes, which outlives it.
class Training {
 public:
  explicit Training(DataParallel& dp) : dp_(dp) {}

  [[nodiscard]] const Group& group() const;
  // ConfigError where gradients cannot be changed before step(), or ranks have run out of data in a Join.
  void require_usable() const;
  // For a call between a step() and the next backward, ConfigError elsewhere: waits until nothing is on its
  // way in the group.
  void settle_for(const char* call) const;
  void reduce_gradients() const;
  [[nodiscard]] std::int64_t steps_given_up() const;  // so far, the same on every rank
  // Ends the training here and on the peers, with this error for every later call.
  void fail(const std::exception_ptr& error) const;
  // Of the parameter group that holds the weight; none where the optimiser does not say it.
  [[nodiscard]] std::optional<double> learning_rate_of(const torch::Tensor& weight) const;
  // Gives what is thrown in a backward pass to a binding of another language.
  void translate(const std::exception_ptr& error) const;

  [[nodiscard]] bool records_trace() const;
  // Adds spans to DataParallel::trace().
  void add_spans(const void* owner, std::function<std::vector<Span>()> spans) const;
  void remove_spans(const void* owner) const;

 private:
  DataParallel& dp_;
};

}  // namespace preconditioner
}  // namespace dear
