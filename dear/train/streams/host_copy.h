#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "dear/comm/buckets/on_device.h"
#include "dear/train/streams/bucket_streams.h"

namespace dear::streams {

// The copy of a flat vector of a device in memory of the group. take() and give() run on a stream of their
// own, so that they wait for no collective.
class FlatHostCopy : public buckets::HostCopy {
 public:
  // It copies all of `vector`, which is 1-D; `copy` has as many elements of its type. `streams` outlives
  // this.
  FlatHostCopy(at::Tensor vector, const View& copy, BucketStreams& streams);
  void follow() override;
  void take() override;
  void give() override;
  [[nodiscard]] std::vector<std::int32_t> take_rows(const buckets::RowsOfTensor& tensor,
                                                    std::int64_t most) override;
  void give_rows(const buckets::RowsOfTensor& tensor, std::span<const std::int32_t> rows) override;

 private:
  class OnOwnStream;
  at::Tensor vector_, copy_;
  BucketStreams& streams_;
  std::optional<c10::Stream> own_;   // none on the CPU
  std::optional<c10::Event> ready_;  // of what comes before the next take
};

}  // namespace dear::streams
