#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dear/testing/stub_device/streams.h"

namespace dear::stub_device {

enum class Movement { all_gather, all_reduce, all_to_all, barrier, broadcast, reduce_scatter };
[[nodiscard]] const char* name_of(Movement movement);

// Holds what one rank brings to a collective: tensors of the CPU on the memory of the device. Inputs are a
// rank's part (all else) or its part for each rank (reduce-scatter, all-to-all); outputs one, or that of each
// rank (all-gather, all-to-all). Outputs may lie in inputs.
struct Part {
  Movement movement;
  std::vector<at::Tensor> inputs, outputs;
  ::c10d::ReduceOp::RedOpType reduction = ::c10d::ReduceOp::SUM;
  int root = 0;
};

// Brings the parts of ranks together. Every rank makes the same calls in the same order. Contributions
// are added in the order of ranks; halves in fp32, rounded once; an average is the sum, divided.
class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual int ranks() const = 0;
  // Enqueues this rank's part of its next collective on the stream.
  virtual void enqueue(int rank, c10::Stream stream, Part part) = 0;
};

// Ranks of one process that meet in memory. The n-th collectives of all ranks are one; whoever comes last
// computes it for all.
class Meeting final : public Exchange {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  [[nodiscard]] int ranks() const override { return ranks_; }
  void enqueue(int rank, c10::Stream stream, Part part) override;

 private:
  struct One {
    std::mutex mutex;
    std::vector<std::unique_ptr<Part>> parts;  // of each rank that has come
    int enqueued = 0;
    TicketPtr over = std::make_shared<Ticket>();
  };
  std::shared_ptr<One> next(int rank);
  static void come(int rank, One& one, Part part);

  const int ranks_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<One>> under_way_;
  std::map<int, std::uint64_t> taken_;  // by each rank
};

// Ranks that are processes: their parts travel through a backend for memory of the CPU, all to all.
class OverBackend final : public Exchange {
 public:
  explicit OverBackend(c10::intrusive_ptr<::c10d::Backend> backend) : backend_(std::move(backend)) {}
  [[nodiscard]] int ranks() const override { return backend_->getSize(); }
  void enqueue(int rank, c10::Stream stream, Part part) override;

 private:
  c10::intrusive_ptr<::c10d::Backend> backend_;
};

}  // namespace dear::stub_device
