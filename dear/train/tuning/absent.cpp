// tuned() of a build without tuning: it refuses.

#include "dear/base/vocabulary/error.h"
#include "dear/train/tuning/tuned.h"

namespace dear {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError(
      "this DeAR was built without tuning (DEAR_TUNING=OFF): name the policy and the buckets of a "
      "DataParallel, these by "
      "given() or planned(), and those of a command by --policy and --fusion");
}

}  // namespace

BucketChoice tuned() { refuse(); }

BucketChoice with_chosen_policy(std::vector<std::string> /*candidates*/, BucketChoice /*buckets*/) {
  refuse();
}

BucketChoice tuned(TuningOptions /*options*/) { refuse(); }

}  // namespace dear
