#pragma once

#include <cstdint>
#include <span>

// Sparse gradients for measurements and tests.
namespace dear::studies::aggregation {

struct GeneratedGradients {
  double density = 0.05;  // of the union of all workers
  int workers = 1;
  bool integers = false;  // multiples of 2^-10 below 8, whose sums are exact in fp32 for up to 2000 workers
  std::uint64_t seed = 1;
};

// Writes the gradient of one worker in one step. In each step other elements are not zero on some worker,
// each with probability `density`: one worker, which is drawn, has each of these, every other with
// probability 1/2. Values are normally distributed. The same for the same arguments.
void generate(const GeneratedGradients& gradients, int worker, std::int64_t step, std::span<float> values);

}  // namespace dear::studies::aggregation
