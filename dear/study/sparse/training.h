#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dear/codec/compression.h"
#include "dear/study/sparse/task.h"

namespace dear::study::sparse {

// How gradients travel; nothing: dense. Momentum of the compression is instead of the optimiser's.
using Method = std::optional<Compression>;
std::string name_of(const Method& method);  // "dense", "top-k:0.01,ef"

struct TrainingOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;  // of the optimiser, after the communication
  int steps = 800;
  int batch = 32;  // of each worker
  std::uint64_t seed = 1;
};

struct TrainedAccuracy {
  double validation = 0, test = 0;  // a diverged run's is that of parameters that are no numbers
  bool diverged = false;
};

// Trains the task's perceptron by SGD with all workers in this thread: each encodes the gradient of its own
// batch with a codec and a Feedback of its own, and the optimiser gets the mean of what they carry. Every
// tensor is encoded, whatever its size and name. Reducible and gatherable schemes; the scope is a tensor, or
// else the model. The same bits for the same arguments.
TrainedAccuracy train(const Task& task, const Method& method, const TrainingOptions& options);

}  // namespace dear::study::sparse
