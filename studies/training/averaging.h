#pragma once

#include "studies/training/method.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::studies::training {

// All workers' codecs and residuals in one thread, and the mean of the gradients that they carry.
class Averaging {
 public:
  virtual ~Averaging() = default;
  // Overwrites `mean`, and consumes the gradients of each worker. `parameters` are what weight decay of the
  // compression acts on. Steps are counted from 0. Returns the bytes that a worker sends where collectives
  // send no more than they must.
  virtual double average(std::vector<std::vector<float>>& gradients, std::span<const float> parameters,
                         std::int64_t step, std::span<float> mean) = 0;
};

// Makes the averaging of parameters that are these tensors, one after the other. Every tensor is encoded,
// whatever its size and name; the scope is a tensor, or else the model. `seed` is that of random schemes.
// ConfigError for low-rank, fp16 and bf16, which are not studied.
std::unique_ptr<Averaging> make_averaging(const std::vector<Range>& tensors, std::size_t workers,
                                          const Method& method, std::uint64_t seed);

// Makes the averaging of `elements` that travel as a sketch, sized from the unions of the steps before; dense
// in the first step, where a sketch would not pay and where one cannot be read.
std::unique_ptr<Averaging> make_sketched_averaging(std::int64_t elements, std::size_t workers,
                                                   const Compression& compression);

// Adds all workers' gradients up, each after the other, and divides by their number.
void average_dense(const std::vector<std::vector<float>>& gradients, std::span<float> mean);

}  // namespace dear::studies::training
