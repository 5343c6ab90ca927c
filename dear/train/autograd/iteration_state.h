#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

namespace dear::autograd {

// Where a program is in an iteration of training, as far as its calls and the gradient hooks tell. A forward
// pass may come in every state.
//
//                 step()           a gradient            the pass ends
//     learning ------------> ready -----------> backward -------------> pending
//                              ^                  |  ^------ a gradient ---|
//                              +------------------+------------------------+
//                                 step(), discard_step(), or gradients are dropped
//
//     state              a gradient      step()          discard_step()  regroup()        synchronize()
//     learning           is counted      makes buckets   drops gradients replaces option  meets the ranks
//     ready              begins a pass   is an iteration is given up     makes buckets    sends buffers
//     backward, pending  goes to bucket  is an iteration is given up     ConfigError      sends nothing
//     closed             ConfigError     is an iteration is given up     ConfigError      sends nothing
//     failed             throws          throws          throws          throws           throws
//
// From every state but `failed`, clipping or unscaling gradients leads to `closed`, and step() or
// discard_step() from there to `ready`.
//
// An error that leaves a call after other ranks may count on it leads to `failed` from every state, for good:
// each later call throws that error again. For the program's thread.
class IterationState {
 public:
  enum class State : std::uint8_t {
    learning,  // before the first step(): nothing is sent, all operators are observed
    ready,     // no gradient has arrived since the last step
    backward,  // in a backward pass
    pending,   // between a backward pass and the next one, or step()
    closed,    // gradients are reduced, and may be clipped or unscaled: no other one counts before step()
    failed
  };

  explicit IterationState(int rank) : rank_(rank) {}
  [[nodiscard]] State now() const { return state_; }
  // Whether gradients of this iteration may be on their way, so that only the schedule may issue collectives.
  [[nodiscard]] bool sends() const {
    return state_ == State::backward || state_ == State::pending || state_ == State::closed;
  }

  // Whether a gradient of the backward pass with this number begins one: never while learning; again after
  // another pass within it has ended.
  [[nodiscard]] bool begins_pass(int pass) const;
  void pass_began(int pass);
  void pass_ended();
  void closed();      // the gradients are final, and reduced
  void step_taken();  // the first one ends the learning
  void given_up();    // by discard_step(), or because gradients were dropped
  // Keeps the first error. Returns whether this is the first.
  bool fail(const std::exception_ptr& error) noexcept;

  void throw_if_failed() const;
  // Throws the failure, or a ConfigError when gradients of the next step are there.
  void require_between_steps(std::string_view call) const;

 private:
  int rank_;
  State state_ = State::learning;
  int pass_ = -1;  // the one that runs, or ended by an exception
  std::exception_ptr failure_;
};

}  // namespace dear::autograd
