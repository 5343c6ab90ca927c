#pragma once

#include "studies/sparse/task.h"
#include "studies/training/method.h"
#include <cstdint>

namespace dear::studies::sparse {

using training::Method;
using training::name_of;

// SGD on the mean of what travelled, after the communication.
struct Optimiser {
  double momentum = 0.9;  // unless the compression has its own, which acts before the communication
  bool nesterov = false;
  double decay = 0;  // of weights

  friend bool operator==(const Optimiser&, const Optimiser&) = default;
};

struct TrainingOptions {
  double learning_rate = 0.1;
  Optimiser optimiser{};
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
// tensor is encoded: see training::make_averaging(). The same bits for the same arguments.
TrainedAccuracy train(const Task& task, const Method& method, const TrainingOptions& options);

}  // namespace dear::studies::sparse
