#include "dear/comm/buckets/bucket_wire.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/buckets/layout.h"

namespace dear::buckets {

BucketWire::BucketWire(Group group, std::vector<Flat> buckets, conductor::OnStepEnd ended, Options options)
    : group_(std::move(group)),
      buckets_(std::move(buckets)),
      ended_(std::move(ended)),
      options_(std::move(options)) {
  if (std::any_of(buckets_.begin(), buckets_.end(),
                  [](const Flat& bucket) { return bucket.sparse && bucket.sparse->on_device(); }))
    copies_ = std::make_unique<conductor::SerialLane>();
}

Request BucketWire::request_of(const Communicate& work) const {
  if (work.payload == Payload::decision && options_.decision.buffer.bytes() > 0)
    return {.collective = Collective::broadcast, .view = options_.decision, .output = {}};
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
  const bool has_shares = work.collective == Collective::reduce_scatter ||
                          work.collective == Collective::all_gather ||
                          work.collective == Collective::all_reduce;
  return {.collective = work.collective,
          .view = view,
          .output = {},
          .shares = has_shares ? options_.shares.get() : nullptr,
          .reduction = Reduction::average,
          .root = 0,
          .label = work.bucket};
}

bool BucketWire::uses_group(BucketId bucket) const {
  const Flat& flat = buckets_.at(bucket);
  return !flat.gradients.buffer.on_device() || flat.encoded || flat.sparse;
}

std::int64_t BucketWire::rows_bytes() const {
  std::int64_t bytes = 0;
  for (const Flat& bucket : buckets_)
    if (bucket.sparse) bytes += bucket.sparse->bytes();
  return bytes;
}

// Returns null where the request is to be issued as it is.
SparseBucket* BucketWire::sparse_of(const Communicate& work, const Request& request) const {
  if (work.payload != Payload::gradients) return nullptr;
  SparseBucket* const sparse = buckets_[work.bucket].sparse.get();
  return sparse != nullptr && sparse->carries(request) ? sparse : nullptr;
}

Pending BucketWire::issue_as_rows(SparseBucket& bucket, const Request& reduction, Group::Continuation then) {
  const Request counts = bucket.begin(reduction);
  count(counts);
  return group_.issue(
      counts,
      [this, &bucket, asked = false]() mutable -> std::optional<Request> {
        if (!std::exchange(asked, true)) {
          if (std::optional<Request> next = bucket.next()) {
            count(*next);
            return next;
          }
        }
        bucket.end();
        return std::nullopt;
      },
      std::move(then));
}

Pending BucketWire::issue(const Communicate& work, const Request& request, Group::Continuation then) {
  EncodedBucket* const encoded =
      work.payload == Payload::encoded ? buckets_[work.bucket].encoded.get() : nullptr;
  count(request);
  if (encoded == nullptr || !encoded->may_ask_more(work.collective, work.part))
    return group_.issue(request, std::move(then));
  return group_.issue(
      request,
      [this, encoded, label = request.label, asked = false]() mutable {
        std::optional<Request> more = std::exchange(asked, true) ? std::nullopt : encoded->more();
        if (more) {
          more->label = label;
          count(*more);
        }
        return more;
      },
      std::move(then));
}

void BucketWire::enqueue(const Request& request, Payload payload) {
  count(request);
  options_.device->enqueue(request, payload);
}

// Nothing is sent where ranks share memory.
void BucketWire::count(const Request& request) {
  if (request.view.buffer.shared()) return;
  sent_bytes_.fetch_add(bytes_sent(request, group_.size()), std::memory_order_relaxed);
}

conductor::Started BucketWire::start(Instance which, const Step& step) {
  const auto& work = std::get<Communicate>(step.work);
  const auto ended = [this, which](const CollectiveResult& result) {
    ended_({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
            .error = result.error});
  };
  const Request request = request_of(work);
  const bool on_device = request.view.buffer.on_device();
  if (carried_out_.erase(which.step) > 0) {
    if (on_device) return conductor::Started::done;
    group_.issue({.collective = Collective::barrier}, ended);
    return conductor::Started::under_way;
  }
  SparseBucket* const sparse = sparse_of(work, request);
  if (on_device && (sparse == nullptr || sparse->stays_on_device())) {
    enqueue(request, work.payload);
    return conductor::Started::done;
  }
  if (on_device) {
    copies_->post([this, sparse, request, which, ended] {
      try {
        issue_as_rows(*sparse, request, ended);
      } catch (...) {
        ended_({.span = {which, 0, 0}, .error = std::current_exception()});
      }
    });
  } else if (sparse != nullptr) {
    issue_as_rows(*sparse, request, ended);
  } else {
    issue(work, request, ended);
  }
  return conductor::Started::under_way;
}

void BucketWire::carry_out(const Communicate& work, const Request& request, std::vector<Pending>& pending) {
  SparseBucket* const sparse = sparse_of(work, request);
  if (request.view.buffer.on_device() && (sparse == nullptr || sparse->stays_on_device()))
    enqueue(request, work.payload);
  else
    pending.push_back(sparse != nullptr ? issue_as_rows(*sparse, request, {}) : issue(work, request));
}

void BucketWire::carry_out(const Schedule& schedule, const std::vector<StepId>& steps) {
  std::vector<Pending> pending;
  for (const StepId step : steps) {
    if (!carried_out_.insert(step).second) continue;
    const auto& work = std::get<Communicate>(schedule.steps()[step].work);
    carry_out(work, request_of(work), pending);
  }
  for (const Pending& one : pending) one.wait();
}

void BucketWire::gather_reduced(const Schedule& schedule) {
  std::vector<Pending> pending;
  for (const Step& step : schedule.steps()) {
    const auto* work = std::get_if<Communicate>(&step.work);
    if (work == nullptr || work->payload != Payload::gradients ||
        work->collective != Collective::reduce_scatter)
      continue;
    Request request = request_of(*work);
    request.collective = Collective::all_gather;
    carry_out(*work, request, pending);
  }
  for (const Pending& one : pending) one.wait();
}

}  // namespace dear::buckets
