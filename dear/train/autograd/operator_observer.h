#pragma once

#include <ATen/record_function.h>
#include <torch/types.h>

// Sees every operator of libtorch before its kernel runs, through at::RecordFunction.
//
// [Note: one observer for the process] libtorch takes a plain function as callback, so the watchers stand in
// one table of the process. The callback is registered once and disabled while no observer asks for it; then
// operators cost what they cost without DeAR. It sees operators of all threads, save those that switch
// observation off for themselves (Unobserved), as our own updates do.
namespace dear::autograd {

class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // On the thread of the operator, whichever that is: methods of one observer run at the same time.
  // An operator is about to read or write `tensor`. libtorch swallows exceptions here: keep them instead.
  // Returns whether the tensor is one of this observer's.
  virtual bool touched(const at::Tensor& tensor) noexcept = 0;
  // A node of the backward graph is about to run.
  virtual void backward_node() noexcept {}
  // Throws what touched() had to keep: for callers that can.
  virtual void throw_if_failed() = 0;
};

// One observer's registration. enable() and disable() cost about 0.1 us.
class ObserverRegistration {
 public:
  explicit ObserverRegistration(
      OperatorObserver& observer);  // disabled. ConfigError when too many live at once
  ~ObserverRegistration();          // returns when no thread is inside the observer any longer
  ObserverRegistration(const ObserverRegistration&) = delete;
  ObserverRegistration& operator=(const ObserverRegistration&) = delete;

  void enable();
  void disable();
  // Disables, and returns when no thread is inside the observer any longer. Not from inside of it.
  void retreat();

 private:
  OperatorObserver& observer_;
  std::size_t slot_;
  bool enabled_ = false;
};

// While one lives, operators of this thread are not observed.
using Unobserved = at::DisableRecordFunctionGuard;

// Waits, for a tensor that is about to be read or written past the operators (by a raw pointer), for what an
// operator on it would wait for. Throws what went wrong before with those whose tensor it is.
void await_whole(const at::Tensor& tensor);

// Is called in the child of a fork, whose threads are gone: no operator waits any more.
void stop_observing_after_fork() noexcept;

}  // namespace dear::autograd
