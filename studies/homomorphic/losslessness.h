#pragma once

#include <cstdint>
#include <vector>

namespace dear::studies::homomorphic {

// Random sums in fixed point (int64), beside the dense sum of the same integers.
struct ExactSums {
  int workers = 4;
  double density = 0.05;  // of each worker
  double sized_for = 1;   // the part of the union's keys that sketches were sized for
  int trials = 0;
  int exact = 0;     // recovered, every element the same bits
  int reported = 0;  // not recovered, and said so; the others are wrong without a word
};

// Sums of four workers in fp32, beside those in fp64.
struct FloatError {
  double rows_per_key = 0;
  bool heavy_tailed = false;  // values whose logarithms are normal with deviation 3, else normal ones
  int recovered = 0;          // of the trials; errors are means of these
  double relative = 0;        // the norm of the error over that of the sum
  double largest = 0;         // the largest error over the largest magnitude
  double plain = 0;           // `relative` of a dense sum in fp32
  double wrong = 0;           // the share of elements that are off by more than a thousandth of themselves
};

struct LosslessnessOptions {
  std::int64_t elements = 20'000;
  std::vector<int> workers = {2, 4, 16};
  std::vector<double> densities = {0.01, 0.05, 0.2};
  std::vector<double> sized_for = {1, 0.5};
  int trials = 100;                           // of each of these
  std::int64_t elements_of_floats = 500'000;  // a tenth of which is not zero on some worker
  std::vector<double> rows_per_key = {1.25, 1.3, 1.5, 2};
  int trials_of_floats = 5;
};

std::vector<ExactSums> exact_sums(const LosslessnessOptions& options);
std::vector<FloatError> float_errors(const LosslessnessOptions& options);

}  // namespace dear::studies::homomorphic
