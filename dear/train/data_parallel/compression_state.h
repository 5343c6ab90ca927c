#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace dear {

// CompressionReport counts what compression has done on this rank since construction.
struct CompressionReport {
  std::int64_t steps = 0;
  double bytes = 0;                  // sent by this rank, where collectives send no more than they must
  double dense_bytes = 0;            // what dense gradients would have been
  double residual_norm = 0;          // of what error feedback holds now; 0 without
  std::int64_t dense_exchanges = 0;  // of buckets that a sketch could not carry
  std::int64_t not_finite = 0;       // steps of a bucket whose mean came out with NaN or infinity
  int not_finite_rank = -1;  // the last rank whose gradients a sketch met NaN or infinity in; -1: none
};

// The memory of a compression of one parameter on this rank, from step to step: fp32 tensors of the
// parameter's number of elements, in the order in which they lie in memory; empty ones for nothing. Every
// rank has its own.
struct CompressionStateOfParameter {
  torch::Tensor parameter;
  torch::Tensor residual, momentum, codec;
};
struct CompressionStates {
  std::int64_t step = 0;  // for what is drawn, and for the ratio while it warms up
  std::vector<CompressionStateOfParameter> parameters;
};

}  // namespace dear
