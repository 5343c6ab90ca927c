#include "dear/train/autograd/iteration_state.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::autograd {

bool IterationState::begins_pass(int pass) const {
  return state_ == State::ready || state_ == State::pending || state_ == State::closed ||
         (state_ == State::backward && pass != pass_);
}

void IterationState::pass_began(int pass) {
  if (!begins_pass(pass)) return;
  state_ = State::backward;
  pass_ = pass;
}

void IterationState::pass_ended() {
  if (state_ == State::backward) state_ = State::pending;
}

void IterationState::closed() {
  if (state_ != State::failed) state_ = State::closed;
}

void IterationState::step_taken() {
  if (state_ != State::failed) state_ = State::ready;
}

void IterationState::given_up() {
  if (sends()) state_ = State::ready;
}

bool IterationState::fail(const std::exception_ptr& error) noexcept {
  if (state_ == State::failed) return false;
  state_ = State::failed;
  failure_ = error;
  return true;
}

void IterationState::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
}

void IterationState::require_between_steps(std::string_view call) const {
  throw_if_failed();
  if (!sends()) return;
  throw ConfigError(fmt::format(
      "rank {}: a gradient of the next step is there already: {} between step() and the next backward", rank_,
      call));
}

}  // namespace dear::autograd
