#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/comm/group/request.h"
#include "dear/schedule/policies/step.h"

namespace dear::buckets {

// [Note: buckets on a device] The flat buffers of a bucket are memory of the group, or of a device
// (Buffer::on_device()). What reduces and gathers them on a device is enqueued there, and the host waits for
// nothing. Gradients that travel encoded, or as rows, are seen by the host: they are copied into memory of
// the group, travel from there, and the result is copied back. Which way a collective goes is the same on
// every rank, so that each of both ways sees one order.

// A DeviceQueue takes collectives on memory of a device, and runs them in the order in which they are
// enqueued. Every rank enqueues the same ones in the same order, from one thread at a time.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // `request`: an average or an all-gather of elements of bucket `request.label`, of this payload. Returns at
  // once. ScheduleError for another collective.
  virtual void enqueue(const Request& request, Payload payload) = 0;
};

// The elements of a flat buffer that are the rows of one tensor.
struct RowsOfTensor {
  Range elements;
  std::int64_t rows = 1;  // a divisor of the elements
};

// A vector on a device, and a copy of it in memory of the group. The host waits for each copy. One thread at
// a time.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // On the program's thread: what it has enqueued comes before the next take.
  virtual void follow() = 0;
  virtual void take() = 0;  // copies from the device
  virtual void give() = 0;  // copies to the device
  // Takes the rows in which a bit is set. Returns their numbers, ascending. Takes nothing where they are more
  // than `most`.
  [[nodiscard]] virtual std::vector<std::int32_t> take_rows(const RowsOfTensor& tensor,
                                                            std::int64_t most) = 0;
  // Gives these rows; all other elements of the vector become zero on the device.
  virtual void give_rows(const RowsOfTensor& tensor, std::span<const std::int32_t> rows) = 0;
};

}  // namespace dear::buckets
