#include "dear/wire/bucket_wire.h"

#include <utility>
#include <variant>

#include "dear/base/error.h"
#include "dear/wire/layout.h"

namespace dear::wire {
BucketWire::BucketWire(Group group, std::vector<Flat> buckets, exec::OnStepEnd ended, View decision)
    : group_(std::move(group)),
      buckets_(std::move(buckets)),
      ended_(std::move(ended)),
      decision_(std::move(decision)) {}

Request BucketWire::request_of(const Communicate& work) const {
  if (work.payload == Payload::decision && decision_.buffer.bytes() > 0)
    return {.collective = Collective::broadcast, .view = decision_, .output = {}};
  if (!is_of_bucket(work.payload) || work.group != ProcessGroup::all)
    throw ScheduleError("no bucket can do \"" + name_of(work) +
                        "\": run a policy whose collectives are of buckets, and of all ranks");
  const Flat& flat = buckets_.at(work.bucket);
  View view = work.payload == Payload::gradients ? flat.gradients : flat.parameters;
  const Range part = part_of(work.chunk, flat.bucket_bytes, view.count, view.dtype, group_.size());
  view.offset_bytes += part.begin * size_of(view.dtype);
  view.count = part.size();
  return {.collective = work.collective,
          .view = view,
          .output = {},
          .reduction = Reduction::average,
          .root = 0,
          .label = work.bucket};
}

void BucketWire::start(Instance which, const Step& step) {
  group_.issue(request_of(std::get<Communicate>(step.work)), [this, which](const CollectiveResult& result) {
    ended_({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
            .error = result.error});
  });
}

}  // namespace dear::wire
