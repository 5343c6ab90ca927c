#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace dear::bench_collectives {

// What a rank does beside its collectives while it trains: a thread that multiplies matrices, one after
// another, from its construction until it is gone. It runs on the cores of the thread that made it.
class Computation {
 public:
  Computation();  // TransportError when the system starts no thread
  ~Computation();
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  // The number of products finished up to now; each takes well below a millisecond of a core.
  [[nodiscard]] std::int64_t products() const { return products_.load(std::memory_order_relaxed); }

 private:
  void multiply();

  std::atomic<std::int64_t> products_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Measures the floating-point operations a second that so many threads attain together in such products, for
// a fifth of a second, and longer where something else has the cores.
double measure_flops_per_second(int threads);

}  // namespace dear::bench_collectives
