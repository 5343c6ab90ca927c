#include "dear/comm/group/single.h"

#include <cstring>
#include <mutex>
#include <string>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/private_region.h"

namespace dear::comm {
namespace {

class Single final : public Backend {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string description() const override { return "single, 1 rank"; }

  [[nodiscard]] bool takes_any_buffer() const override { return true; }
  Buffer allocate(std::int64_t bytes, Deadline /*deadline*/) override {
    throw_if_aborted();
    return allocate_private(bytes);
  }

  [[nodiscard]] bool shares_memory() const override { return true; }
  Buffer allocate_shared(std::int64_t bytes, Deadline deadline) override {
    Buffer buffer = allocate(bytes, deadline);
    buffer.region()->shared = true;
    return buffer;
  }

  // A reduction over one rank is the vector itself, so only all-to-alls move anything.
  Timing run(const Request& request, Deadline /*deadline*/) override {
    throw_if_aborted();
    const SteadyTime begin = SteadyClock::now();
    const View& from = request.view;
    const View& to = request.output;
    if (request.collective == Collective::all_to_all && from.count > 0) {
      std::memcpy(to.buffer.data() + to.offset_bytes, from.buffer.data() + from.offset_bytes,
                  static_cast<std::size_t>(from.count * size_of(from.dtype)));
    }
    if (request.collective == Collective::all_to_all_v) keep_rows(request);
    return {.begin = begin,
            .end = SteadyClock::now(),
            .asked = request.asked == SteadyTime{} ? begin : request.asked};
  }

  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline /*deadline*/) override {
    throw_if_aborted();
    return subgroup.members.empty() ? nullptr : std::make_unique<Single>();
  }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) {
      reason_ = "rank 0 failed: " + reason;
    }
  }

 private:
  static void keep_rows(const Request& request) {
    const comm::ChunkPlaces places = places_of(request, 1);
    const ChunkRows& rows = request.rows;
    check_counts(places, places.counts_of(rows.sent, 0), 0, 0);
    for (int chunk = 0; chunk < rows.chunks; ++chunk) {
      rows.received[chunk] = rows.sent[chunk];
      if (rows.sent[chunk] == 0) continue;
      std::memcpy(request.output.buffer.data() + request.output.offset_bytes + places.begin_of(0, chunk),
                  request.view.buffer.data() + request.view.offset_bytes + places.begin_of(0, chunk),
                  static_cast<std::size_t>(rows.sent[chunk] * places.row_bytes));
    }
    if (rows.moved != nullptr) *rows.moved = {};
  }

  void throw_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) {
      throw TransportError(reason_);
    }
  }

  std::mutex mutex_;
  std::string reason_;  // empty while all is well
};

}  // namespace

std::unique_ptr<Backend> make_single() { return std::make_unique<Single>(); }

}  // namespace dear::comm
