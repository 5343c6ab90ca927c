// tuned() of a build without tuning: it refuses.

#include "dear/base/vocabulary/error.h"
#include "dear/train/tuning/tuned.h"

namespace dear {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError(
      "this DeAR was built without tuning (DEAR_TUNING=OFF): name the buckets of a DataParallel, by given() "
      "or planned(), and those of a command by --fusion");
}

}  // namespace

BucketChoice tuned() { refuse(); }

BucketChoice tuned(TuningOptions /*options*/) { refuse(); }

}  // namespace dear
