#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/metrics/callbacks.h"

namespace dear {

// The gradients of one bucket on one rank, as a bucket hook sees them. Tensors are views into the bucket:
// what is written into them travels, or is applied. They are CPU tensors that autograd does not record.
struct BucketGradients {
  struct Named {
    std::string name;      // of the parameter
    torch::Tensor values;  // of the parameter's shape; 1-D where only a part of it lies here
    std::int64_t begin;    // of that part in the parameter, in elements in the order of memory; else 0
  };
  std::int64_t iteration = 0;  // from 0, steps that were given up included
  std::size_t bucket = 0;      // index in DataParallel::grouping()
  torch::Tensor flat;          // all of them, 1-D, with zeros between tensors where there is padding
  std::vector<Named> tensors;
};

// When a bucket hook is called.
//   before_reduction: with this rank's local gradients of the whole bucket, when the last of them has arrived
//     in backward(), or in step(). On the program's thread, before any collective of the bucket begins.
//   after_reduction: with the means over ranks, before the update: those elements that this rank updates,
//     which is its shard under the policies that shard updates, else everything. Clipping has been applied.
//     On the thread of the update lane, under serial and wfbp on the program's. A bucket that travels in
//     chunks comes chunk by chunk.
enum class HookAt : std::uint8_t { before_reduction, after_reduction };

// A hook is called for every bucket of every step, in the order of registration where there are several, and
// returns when it is done with the bucket: its time is added to backward(), or to the update. It may change
// gradients in place. It must not issue collectives, nor call anything of DeAR, nor read parameters or other
// gradients of the model: those are not observed, and may be on their way. Ranks should register alike: what
// one of them does is not told to the others, and averages are taken of whatever comes.
//
// When a hook throws, the step has failed on every rank: that rank throws the hook's error, from backward()
// or from the next call of DeAR, the others one that names the rank, the bucket and the hook's message.
//
// Hooks stay through regroup() and tuning, and are called with the new buckets. They work under every policy,
// and with compression: before it, and after it. A rank that trains alone has no buckets: each parameter
// counts as one. Gradients of a step that is given up may have been seen by no hook, or by those before the
// reduction alone.
//
// A parameter without a gradient on this rank is zero in before_reduction, and counts as used once a hook
// makes it anything else than +0.0.
using BucketHook = std::function<void(BucketGradients&)>;

namespace metrics {

// The hooks of one DataParallel.
class BucketHooks {
 public:
  explicit BucketHooks(Group group) : group_(std::move(group)) {}
  RemovableHandle add(BucketHook hook, HookAt at);  // ConfigError for an empty one
  [[nodiscard]] bool any(HookAt at) const { return hooks(at).any(); }
  // Ends the group with the reason, and throws it, when a hook throws.
  void run(HookAt at, BucketGradients& gradients);

 private:
  using Hooks = metrics::Callbacks<BucketHook>;
  [[nodiscard]] const Hooks& hooks(HookAt at) const {
    return at == HookAt::before_reduction ? before_ : after_;
  }

  Group group_;
  Hooks before_, after_;
};

}  // namespace metrics
}  // namespace dear
