#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/train/streams/bucket_streams.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::streams {

// The mean gradients of an iteration on a device with streams, after their reductions and before the updates:
// what is asked of them and done to them is enqueued on the communication stream, and the host waits for
// nothing. As optim::ReducedGradients, but that no gradient is marked as unused. Every rank makes the same
// calls.
class GradientsOnStream {
 public:
  struct Vector {
    BucketId bucket;
    at::Tensor gradients;  // part of the bucket's flat buffer
  };
  // [Note: counted and held]. Padding in them is zero, and so is in no norm.
  GradientsOnStream(StreamCollectives& collectives, BucketStreams& streams, std::vector<Vector> counted,
                    std::vector<Vector> held)
      : collectives_(collectives), streams_(streams), counted_(std::move(counted)), held_(std::move(held)) {}

  // Scales all gradients by max_norm / (norm + 1e-6) where that is below 1. Returns the norm, over all ranks:
  // a scalar of fp64 that the current stream may read. `keep_nonfinite`: changes nothing where it is not
  // finite.
  at::Tensor clip(double max_norm, double type, bool keep_nonfinite = false);
  void clamp(double limit);
  void scale(double factor);
  void scale(const at::Tensor& factor);  // of one element, made on the current stream
  // Whether an element of a gradient of any rank is not finite: a scalar of fp32, 1 if so, else 0, that the
  // current stream may read.
  at::Tensor nonfinite();

 private:
  void multiply(const at::Tensor& factor);  // on the communication stream, which is the current one
  void written();

  StreamCollectives& collectives_;
  BucketStreams& streams_;
  std::vector<Vector> counted_, held_;
};

}  // namespace dear::streams
