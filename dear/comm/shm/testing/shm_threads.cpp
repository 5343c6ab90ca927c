#include "dear/comm/shm/testing/shm_threads.h"

#include <atomic>
#include <mutex>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/comm/shm/control.h"
#include "dear/comm/shm/meeting.h"

namespace dear::backends::testing {
namespace {

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

}  // namespace

std::vector<std::unique_ptr<SharedMemory>> make_shared_memory_threads(int size) {
  const auto board = Segment::create(Control::bytes_for(size), "the ranks' meeting place");
  board->close_file();
  const auto shelf = std::make_shared<ThreadChannel::Shelf>();
  static std::atomic<int> worlds = 0;
  const std::string name = fmt::format("threads of {}, {}", getpid(), worlds.fetch_add(1));
  std::vector<std::unique_ptr<SharedMemory>> backends;
  for (int rank = 0; rank < size; ++rank) {
    backends.push_back(
        make_shm({.board = board, .peers = Peers(), .channel = std::make_unique<ThreadChannel>(shelf, size)},
                 {.rendezvous = name, .rank = rank, .size = size, .deadline = Deadline(SteadyTime{})}));
  }
  return backends;
}

std::vector<std::unique_ptr<Backend>> make_shm_threads(int size) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& backend : make_shared_memory_threads(size)) backends.push_back(std::move(backend));
  return backends;
}

}  // namespace dear::backends::testing
