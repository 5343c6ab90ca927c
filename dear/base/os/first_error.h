#pragma once

#include <exception>

namespace dear::os {

// For an object that cannot be used after a failure: its first error is thrown again by every later call. Not
// thread-safe.
class FirstError {
 public:
  // Calls `action`, or throws the first error if there is one. An error of `action` becomes the first error,
  // is given to `tell`, and thrown.
  template <typename Do, typename Tell>
  auto guard(const Do& action, const Tell& tell) {
    if (error_) {
      std::rethrow_exception(error_);
    }
    try {
      return action();
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      tell(error);
      throw;
    }
  }
  [[nodiscard]] bool has_come() const { return error_ != nullptr; }

 private:
  std::exception_ptr error_;
};

}  // namespace dear::os
