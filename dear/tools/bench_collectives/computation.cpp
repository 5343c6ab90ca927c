#include "dear/tools/bench_collectives/computation.h"

#include <Eigen/Core>

#include "dear/base/os/start_thread.h"

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

}  // namespace dear::bench_collectives
