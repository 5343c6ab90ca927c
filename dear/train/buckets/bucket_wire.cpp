#include "dear/train/buckets/bucket_wire.h"

#include <utility>
#include <variant>

#include "dear/base/vocabulary/error.h"
#include "dear/train/buckets/layout.h"

namespace dear::buckets {
BucketWire::BucketWire(Group group, std::vector<Flat> buckets, conductor::OnStepEnd ended, View decision)
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
  if (work.payload == Payload::encoded) {
    if (!flat.encoded) throw ScheduleError("no codec can do \"" + name_of(work) + "\": give the bucket one");
    Request request = flat.encoded->request(work.collective, work.part);
    request.label = work.bucket;
    return request;
  }
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

std::int64_t BucketWire::rows_bytes() const {
  std::int64_t bytes = 0;
  for (const Flat& bucket : buckets_)
    if (bucket.sparse) bytes += bucket.sparse->bytes();
  return bytes;
}

// Null where the request is to be issued as it is.
SparseBucket* BucketWire::sparse_of(const Request& request) const {
  if (request.label < 0 || request.label >= static_cast<std::int64_t>(buckets_.size())) return nullptr;
  SparseBucket* const sparse = buckets_[static_cast<std::size_t>(request.label)].sparse.get();
  return sparse != nullptr && sparse->carries(request) ? sparse : nullptr;
}

Pending BucketWire::issue_as_rows(SparseBucket& bucket, const Request& reduction, Group::Continuation then) {
  const Request counts = bucket.begin(reduction);
  count(counts);
  return group_.issue(
      counts,
      [this, &bucket, asked = false]() mutable {
        std::optional<Request> next = std::exchange(asked, true) ? std::nullopt : bucket.next();
        if (next) count(*next);
        return next;
      },
      [&bucket, then = std::move(then)](const CollectiveResult& result) {
        if (!result.error) bucket.end();
        if (then) then(result);
      });
}

Pending BucketWire::issue(const Request& request, Group::Continuation then) {
  if (SparseBucket* const sparse = sparse_of(request))
    return issue_as_rows(*sparse, request, std::move(then));
  count(request);
  return group_.issue(request, std::move(then));
}

// Nothing is sent where ranks share memory.
void BucketWire::count(const Request& request) {
  if (request.view.buffer.shared()) return;
  sent_bytes_.fetch_add(bytes_sent(request, group_.size()), std::memory_order_relaxed);
}

void BucketWire::start(Instance which, const Step& step) {
  const auto& work = std::get<Communicate>(step.work);
  const auto ended = [this, which](const CollectiveResult& result) {
    ended_({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
            .error = result.error});
  };
  if (carried_out_.erase(which.step) > 0) {
    group_.issue({.collective = Collective::barrier}, ended);
    return;
  }
  const Request request = request_of(work);
  EncodedBucket* const encoded = buckets_.empty() ? nullptr : buckets_.at(work.bucket).encoded.get();
  if (work.payload != Payload::encoded || !encoded->may_ask_more(work.collective, work.part)) {
    issue(request, ended);
    return;
  }
  count(request);
  group_.issue(
      request,
      [this, encoded, label = request.label, asked = false]() mutable {
        std::optional<Request> more = std::exchange(asked, true) ? std::nullopt : encoded->more();
        if (more) {
          more->label = label;
          count(*more);
        }
        return more;
      },
      ended);
}

void BucketWire::carry_out(const Schedule& schedule, const std::vector<StepId>& steps) {
  std::vector<Pending> all;
  for (const StepId step : steps) {
    if (carried_out_.insert(step).second)
      all.push_back(issue(request_of(std::get<Communicate>(schedule.steps()[step].work))));
  }
  for (const Pending& one : all) one.wait();
}

void BucketWire::gather_reduced(const Schedule& schedule) {
  std::vector<Pending> all;
  for (const Step& step : schedule.steps()) {
    const auto* work = std::get_if<Communicate>(&step.work);
    if (work == nullptr || work->payload != Payload::gradients ||
        work->collective != Collective::reduce_scatter)
      continue;
    Request request = request_of(*work);
    request.collective = Collective::all_gather;
    all.push_back(issue(request));
  }
  for (const Pending& one : all) one.wait();
}

}  // namespace dear::buckets
