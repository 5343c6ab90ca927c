#include "dear/schedule/collective.h"

#include <algorithm>

namespace dear {
namespace {

const cost::CollectiveTimes::Seconds& times_of(CollectiveOp op, const cost::CollectiveTimes& times) {
  switch (op) {
    case CollectiveOp::reduce_scatter:
      return times.reduce_scatter;
    case CollectiveOp::all_gather:
      return times.all_gather;
    case CollectiveOp::all_reduce:
      return times.all_reduce;
    case CollectiveOp::broadcast:
      break;
  }
  return times.broadcast;
}

}  // namespace

std::int64_t bytes_of(const Communicate& work, const Workload& workload, const Grouping& grouping) {
  if (work.payload == Payload::buffers) return workload.buffer_bytes;
  return std::min(work.piece.end, grouping.buckets()[work.bucket].bytes) - work.piece.begin;
}

double seconds_of(const Communicate& work, const Workload& workload, const Grouping& grouping,
                  const cost::CollectiveTimes& times) {
  return seconds_of(work.op, bytes_of(work, workload, grouping), times);
}

double seconds_of(CollectiveOp op, std::int64_t bytes, const cost::CollectiveTimes& times) {
  const cost::CollectiveTimes::Seconds& seconds = times_of(op, times);
  return seconds ? seconds(bytes) : 0;
}

}  // namespace dear
