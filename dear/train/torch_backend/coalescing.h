#pragma once

#include <exception>
#include <vector>

#include "dear/train/torch_backend/backend.h"

// Between startCoalescing() and endCoalescing() on this thread: of which backend, and the works so far.
namespace dear::torch_backend::coalescing {

inline thread_local const void* backend = nullptr;
inline thread_local std::vector<Backend::Work> works;

// An operation that throws ends the coalescing: PyTorch's manager does not call endCoalescing() then.
class EndsWhenThrown {
 public:
  EndsWhenThrown() = default;
  ~EndsWhenThrown() {
    if (std::uncaught_exceptions() == before_) return;
    backend = nullptr;
    works.clear();
  }
  EndsWhenThrown(const EndsWhenThrown&) = delete;
  EndsWhenThrown& operator=(const EndsWhenThrown&) = delete;

 private:
  const int before_ = std::uncaught_exceptions();
};

}  // namespace dear::torch_backend::coalescing
