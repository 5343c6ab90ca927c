#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "dear/comm/group/backend.h"

// A backend that counts what its collectives carry, for the tests of train.
namespace dear::train::testing {

class Counting : public Backend {
 public:
  Counting(std::unique_ptr<Backend> inner, std::atomic<std::int64_t>& bytes)
      : inner_(std::move(inner)), bytes_(bytes) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override { return inner_->description(); }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return inner_->allocate(bytes, deadline);
  }
  Timing run(const Request& request, Deadline deadline) override {
    bytes_ += request.view.count * size_of(request.view.dtype);
    return inner_->run(request, deadline);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Backend> inner_;
  std::atomic<std::int64_t>& bytes_;  // of the vectors of all collectives of this rank
};

}  // namespace dear::train::testing
