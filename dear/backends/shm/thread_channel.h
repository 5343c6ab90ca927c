#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "dear/backends/shm/segment_channel.h"

namespace dear::backends {

// Threads share the mapping itself. The last to take lets go of it: a buffer lives as long as its handles.
class ThreadChannel final : public SegmentChannel {
 public:
  struct Shelf {
    std::mutex mutex;
    std::shared_ptr<Segment> segment;
    int takers = 0;
  };
  ThreadChannel(std::shared_ptr<Shelf> shelf, int size) : shelf_(std::move(shelf)), size_(size) {}

  void give(const std::shared_ptr<Segment>& segment) override {
    if (size_ > 1) {
      const std::lock_guard lock(shelf_->mutex);
      shelf_->segment = segment;
      shelf_->takers = size_ - 1;
    }
  }
  std::shared_ptr<Segment> take(std::int64_t /*bytes*/, Deadline /*deadline*/) override {
    const std::lock_guard lock(shelf_->mutex);
    return --shelf_->takers == 0 ? std::move(shelf_->segment) : shelf_->segment;
  }

 private:
  std::shared_ptr<Shelf> shelf_;
  int size_;
};

}  // namespace dear::backends
