#pragma once

#include <exception>

namespace dear {

// What an object does after a failure that it cannot mend: the first error is its error for good. One thread
// at a time.
class FirstError {
 public:
  // Does it, unless an error came before: then throws that. Of an error in it, `tell` is told.
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

}  // namespace dear
