#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "dear/base/vocabulary/dtype.h"

namespace dear {

// Memory of one rank on which collectives of one group work, where the peers can reach it without a copy. A
// handle: copies share the memory, which lives until the last of them is gone (also past the group). Zeroed
// when allocated, aligned to a page.
class Buffer {
 public:
  // What a backend keeps for a buffer; a backend derives from it to find the peers' parts.
  struct Region {
    virtual ~Region() = default;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    bool shared = false;     // one memory for all ranks
    bool on_device = false;  // the host does not read it
  };

  Buffer() = default;
  explicit Buffer(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  [[nodiscard]] std::byte* data() const { return region_ ? region_->data : nullptr; }
  [[nodiscard]] std::int64_t bytes() const { return region_ ? region_->bytes : 0; }
  // Whether Group::allocate_shared() made it: see [Note: shared buffers].
  [[nodiscard]] bool shared() const { return region_ && region_->shared; }
  // Whether it is memory of a device, on which no group works.
  [[nodiscard]] bool on_device() const { return region_ && region_->on_device; }
  [[nodiscard]] const std::shared_ptr<Region>& region() const { return region_; }

 private:
  std::shared_ptr<Region> region_;
};

// `count` elements of a buffer from `offset_bytes` on (a multiple of the element size). The same numbers on
// each rank.
struct View {
  Buffer buffer{};
  std::int64_t offset_bytes = 0;
  std::int64_t count = 0;
  DType dtype = DType::f32;
};

}  // namespace dear
