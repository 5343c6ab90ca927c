#include "dear/train/tuning/tuned.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "dear/train/data_parallel/bucket_chooser.h"
#include "dear/train/tuning/live_tuning.h"

namespace dear {

BucketChoice tuned() { return tuned(TuningOptions{}); }

BucketChoice tuned(TuningOptions options) {
  BucketChoice choice{.first = options.start,
                      .text = fmt::format("tuned, {} first, by {}, {}", options.start.text(), options.method,
                                          options.cache.empty() ? "no cache" : "with a cache")};
  choice.make = [options = std::move(options)](const train::ChooserSetting& setting) {
    return std::make_unique<tuning::LiveTuning>(setting, options);
  };
  return choice;
}

}  // namespace dear
