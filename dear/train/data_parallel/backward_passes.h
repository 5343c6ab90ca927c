#pragma once

#include <cstddef>

#include "dear/base/vocabulary/ids.h"

namespace dear::train {

class Trainer;

// BackwardPasses takes the gradients that backward passes bring on their way to buckets, and finds those that
// the program replaces, writes in place or drops.
class BackwardPasses {
 public:
  explicit BackwardPasses(Trainer& own) : own_(own) {}

  void hook_ran(const std::size_t& parameter);  // of the parameter's gradient
  [[nodiscard]] bool gradients_arrived() const;
  // Takes over gradients and parameters that the program has replaced.
  void take_over_replaced();
  [[nodiscard]] bool gradients_are_whole() const;
  void require_unwritten() const;  // see [Note: gradients written in place]
  void drop_gradients();
  void forget_arrivals();
  [[noreturn]] void refuse_late(std::size_t parameter) const;
  void look_at_complete_buckets(LayerId layer);  // which is the last of them to be sent
  void look_at_other_buckets();

 private:
  void gradient_arrived(const std::size_t& parameter);
  void complete(std::size_t parameter);
  void backward_pass_began(const std::size_t& parameter, int pass);
  void backward_pass_ended();
  void see_gradient(std::size_t parameter);
  [[nodiscard]] bool were_dropped(std::size_t but) const;
  void forget_dropped(std::size_t but);
  [[nodiscard]] bool averages_first_gradients() const;
  void average_first_gradients();  // see [Note: gradients of the first iteration]
  [[nodiscard]] bool all_arrived(BucketId bucket) const;

  Trainer& own_;
  bool whole_first_gradients_ = false;
  int first_pass_ = -1;  // the last of those that end with an exchange
};

}  // namespace dear::train
