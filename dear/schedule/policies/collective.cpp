#include "dear/schedule/policies/collective.h"

#include <algorithm>

namespace dear {
namespace {

const cost::CollectiveTimes::Seconds& times_of(Collective collective, const cost::CollectiveTimes& times) {
  switch (collective) {
    case Collective::reduce_scatter:
      return times.reduce_scatter;
    case Collective::all_gather:
      return times.all_gather;
    case Collective::all_reduce:
      return times.all_reduce;
    default:
      return times.broadcast;
  }
}

std::int64_t bytes_of(const Range& chunk, const Bucket& bucket) {
  return std::min(chunk.end, bucket.bytes) - chunk.begin;
}

}  // namespace

std::int64_t bytes_of(const Communicate& work, const Workload& workload, const Grouping& grouping) {
  if (work.payload == Payload::buffers) return workload.buffer_bytes;
  if (work.payload == Payload::decision) return kDecisionBytes;
  if (work.payload == Payload::encoded) return work.chunk.size();
  return bytes_of(work.chunk, grouping.buckets()[work.bucket]);
}

double seconds_of(const Communicate& work, const Workload& workload, const Grouping& grouping,
                  const cost::CollectiveTimes& times) {
  if (work.payload == Payload::buffers) return seconds_of_buffers(workload, times);
  const std::int64_t bytes = bytes_of(work, workload, grouping);
  switch (work.group) {
    case ProcessGroup::node:
      return times.nodes ? seconds_of(work.collective, bytes, times.nodes->inside) : 0;
    case ProcessGroup::across_nodes:
      return seconds_of(work.collective, bytes, times.nodes ? times.nodes->across : times);
    case ProcessGroup::all:
      break;
  }
  return seconds_of(work.collective, bytes, times);
}

double seconds_of_buffers(const Workload& workload, const cost::CollectiveTimes& times) {
  if (times.ranks == 1) return 0;  // it has nobody to send to
  return static_cast<double>(workload.buffers) * times.buffer_seconds +
         seconds_of(Collective::broadcast, workload.buffer_bytes, times);
}

double seconds_of_joint(Collective collective, std::int64_t begin, std::int64_t end,
                        const cost::CollectiveTimes& times) {
  return seconds_of(collective, end, times) - (begin > 0 ? seconds_of(collective, begin, times) : 0);
}

double seconds_of(const Update& work, const Workload& workload, const Grouping& grouping, int shards) {
  const std::int64_t bytes = bytes_of(work.chunk, grouping.buckets()[work.bucket]);
  const double share = static_cast<double>(bytes) / static_cast<double>(workload.bytes());
  return workload.update_seconds * share / (work.scope == UpdateScope::shard ? shards : 1);
}

double seconds_of(Collective collective, std::int64_t bytes, const cost::CollectiveTimes& times) {
  const cost::CollectiveTimes::Seconds& seconds = times_of(collective, times);
  return seconds ? seconds(bytes) : 0;
}

}  // namespace dear
