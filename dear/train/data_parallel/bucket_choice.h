#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dear/schedule/fusion/grouping.h"

namespace dear {

namespace train {
class BucketChooser;  // bucket_chooser.h
struct ChooserSetting;
}  // namespace train

// Says who chooses which tensors of a model travel together in a bucket. given(), planned() and tuned() make
// the choices that there are. What training computes is the same under each.
struct BucketChoice {
  Fusion first;      // the buckets that training begins with
  std::string text;  // one line for people, which the ranks compare
  // Policies that may come into force, the first to begin with; none: DataParallelOptions::policy.
  std::vector<std::string> policies{};
  // Makes the object that chooses other buckets while one DataParallel trains; all ranks call it together.
  // Without it the first buckets stay.
  std::function<std::unique_ptr<train::BucketChooser>(const train::ChooserSetting&)> make{};
};

// Buckets that stay as they are.
BucketChoice given(Fusion fusion = {});

// Buckets whose borders are made once (schedule/fusion/planned.h), from the times and the network that
// DataParallelOptions::profile_steps steps measured. Those steps run in the buckets of `first`.
BucketChoice planned(Fusion first = {});

// Buckets that are tuned while training, with the default TuningOptions (train/tuning/tuned.h). The library
// dear::tuning defines this function, so that a program without a call of it links no tuning.
BucketChoice tuned();

// Buckets as `buckets` chooses them, and a policy: training begins under the first candidate. After
// DataParallelOptions::profile_steps measured steps each candidate is simulated with those times on the
// measured network. The fastest is taken, or the first one, unless another is faster by more than 1 %. Where
// wfbp is a candidate and not expected to be far slower, both are tried for twelve steps first, on devices
// without streams. Rank 0 says which and why. With dear-eager among them what it refuses is refused from the
// first step on. The library dear::tuning defines this function.
BucketChoice with_chosen_policy(std::vector<std::string> candidates, BucketChoice buckets);

}  // namespace dear
