#pragma once

#include "studies/sparse/perceptron.h"
#include <cstdint>
#include <vector>

namespace dear::studies::sparse {

struct TaskShape {
  PerceptronShape model{};
  int workers = 4;
  int samples_of_worker = 4096;
  int samples_of_validation = 4096;  // by which learning rates are chosen; the test has as many
};

// Gaussian inputs with the classes that a teacher, a perceptron of random parameters, gives them.
struct Task {
  PerceptronShape model{};
  std::vector<Samples> of_worker;
  Samples validation, test;
  std::vector<float> initial;  // parameters
};

// It is the same for the same seed: see codec::Draw.
Task make_task(const TaskShape& shape, std::uint64_t seed);

}  // namespace dear::studies::sparse
