#pragma once

#include <coroutine>
#include <exception>
#include <utility>

// Others, with whom a reader speaks in one thread. No wait takes time.
namespace dear::fuzz {

// A coroutine that does what others do. It suspends itself where they wait.
class Turns {
 public:
  struct promise_type {
    std::exception_ptr error;
    Turns get_return_object() { return Turns(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  Turns(Turns&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Turns& operator=(Turns&&) = delete;
  ~Turns() {
    if (coroutine_) coroutine_.destroy();
  }

  // Goes on until they wait. Throws what they throw.
  void go_on() {
    if (coroutine_.done()) return;
    coroutine_.resume();
    if (coroutine_.promise().error)
      std::rethrow_exception(std::exchange(coroutine_.promise().error, nullptr));
  }

 private:
  explicit Turns(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  std::coroutine_handle<promise_type> coroutine_;
};

// As long as it lives, a poll() that would wait gives the others a turn. Where they do not help, the steady
// clock jumps to the end of the wait.
class WhileWaiting {
 public:
  explicit WhileWaiting(Turns& others);
  ~WhileWaiting();
  WhileWaiting(const WhileWaiting&) = delete;
  WhileWaiting& operator=(const WhileWaiting&) = delete;
};

}  // namespace dear::fuzz
