#include "dear/tools/bench_collectives/computation.h"

#include <Eigen/Core>
#include <chrono>
#include <deque>

#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::bench_collectives {
namespace {

// The activations and weights of a layer, which fit into a core's caches.
constexpr int kRows = 64;
constexpr int kInputs = 128;
constexpr int kOutputs = 256;

}  // namespace

Computation::Computation()
    : thread_(
          os::start_thread("that computes beside the collectives of a benchmark", [this] { multiply(); })) {}

Computation::~Computation() {
  ends_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void Computation::multiply() {
  const Eigen::MatrixXf activations = Eigen::MatrixXf::Constant(kRows, kInputs, 1.0F / kInputs);
  const Eigen::MatrixXf weights = Eigen::MatrixXf::Constant(kInputs, kOutputs, 1.0F);
  Eigen::MatrixXf result(kRows, kOutputs);
  while (!ends_.load(std::memory_order_relaxed)) {
    result.noalias() = activations * weights;
    products_.fetch_add(1, std::memory_order_relaxed);
  }
}

double measure_flops_per_second(int threads) {
  constexpr std::chrono::milliseconds kWarmUp{50}, kTurn{200};
  constexpr std::int64_t kLeastProducts = 100;
  constexpr int kMostTurns = 50;
  constexpr double kFlopsOfProduct = 2.0 * kRows * kInputs * kOutputs;
  std::deque<Computation> all;
  for (int i = 0; i < threads; ++i) all.emplace_back();
  const auto products = [&] {
    std::int64_t sum = 0;
    for (const Computation& one : all) sum += one.products();
    return sum;
  };
  std::this_thread::sleep_for(kWarmUp);
  const SteadyTime start = SteadyClock::now();
  const std::int64_t before = products();
  std::int64_t finished = 0;
  // On a host with much else to do a thread may not get a core for a while.
  for (int i = 0; i < kMostTurns && finished < kLeastProducts; ++i) {
    std::this_thread::sleep_for(kTurn);
    finished = products() - before;
  }
  return kFlopsOfProduct * static_cast<double>(finished) /
         std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace dear::bench_collectives
