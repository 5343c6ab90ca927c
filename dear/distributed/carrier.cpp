#include "dear/distributed/carrier.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <sys/prctl.h>
#include <utility>

#include "dear/base/cache_line.h"

namespace dear::distributed {
namespace {

bool has_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::all_to_all;
}

void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

// Elements [begin, begin + count) of every block, at `offset` of the staging memory, blocks `stride` bytes
// apart.
struct Carrier::Chunk {
  std::int64_t begin = 0, count = 0;
  std::int64_t stride = 0, bytes = 0, offset = 0;
};

// Gives the place of a chunk back at its end.
struct Carrier::Placed {
  Placed(Carrier& owner, const Chunk& chunk) : owner_(owner), chunk_(chunk) {}
  ~Placed() { owner_.give_back(chunk_); }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

 private:
  Carrier& owner_;
  const Chunk& chunk_;
};

struct Carrier::UnderWay {
  Operation operation;
  std::mutex mutex;
  std::int64_t chunks = 1;  // that have not ended; one more while chunks are being issued
  std::exception_ptr error{};
};

Carrier::Carrier(Group group, const Options& options)
    : group_(std::move(group)),
      options_(options),
      ring_(options.ring_bytes),
      lane_([] { prctl(PR_SET_NAME, "dear-carrier"); }) {}

Carrier::~Carrier() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return under_way_.load() == 0; });
}

std::int64_t Carrier::elements_of_chunk(const Operation& operation) const {
  const std::int64_t blocks = has_blocks(operation.collective) ? group_.size() : 1;
  const std::int64_t sides = operation.collective == Collective::all_to_all ? 2 : 1;
  const std::int64_t bytes = options_.chunk_bytes / blocks / sides / kCacheLineBytes * kCacheLineBytes;
  return std::max(bytes, kCacheLineBytes) / size_of(operation.dtype);
}

Carrier::Chunk Carrier::next_chunk(const Operation& operation, std::int64_t begin) const {
  Chunk chunk{.begin = begin, .count = std::min(elements_of_chunk(operation), operation.count - begin)};
  chunk.stride = whole_cache_lines(chunk.count * size_of(operation.dtype));
  const std::int64_t blocks = has_blocks(operation.collective) ? group_.size() : 1;
  chunk.bytes = chunk.stride * blocks * (operation.collective == Collective::all_to_all ? 2 : 1);
  return chunk;
}

void Carrier::place(Chunk& chunk) {
  if (!buffer_.region()) buffer_ = group_.allocate(options_.ring_bytes);
  std::unique_lock lock(mutex_);
  std::optional<std::int64_t> offset;
  freed_.wait(lock, [&] { return (offset = ring_.take(chunk.bytes)).has_value(); });
  chunk.offset = *offset;
}

void Carrier::give_back(const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  ring_.give_back(chunk.offset);
  freed_.notify_all();
}

void Carrier::copy_in(const Operation& operation, const Chunk& chunk) const {
  if (operation.collective == Collective::broadcast && operation.root != group_.rank()) return;
  const std::int64_t element = size_of(operation.dtype);
  // The one block of an all-gather is this rank's.
  const std::int64_t first = operation.collective == Collective::all_gather ? group_.rank() : 0;
  std::byte* place = buffer_.data() + chunk.offset + first * chunk.stride;
  for (const std::byte* block : operation.from) {
    copy(place, block + chunk.begin * element, chunk.count * element);
    place += chunk.stride;
  }
}

void Carrier::copy_out(const Operation& operation, const Chunk& chunk) const {
  const bool is_root = operation.root == group_.rank();
  if (operation.collective == Collective::broadcast ? is_root
                                                    : operation.collective == Collective::reduce && !is_root)
    return;
  const std::int64_t element = size_of(operation.dtype);
  const bool apart = operation.collective == Collective::all_to_all;
  const std::int64_t first = operation.collective == Collective::reduce_scatter ? group_.rank()
                             : apart                                            ? group_.size()
                                                                                : 0;
  const std::byte* place = buffer_.data() + chunk.offset + first * chunk.stride;
  for (std::byte* block : operation.to) {
    copy(block + chunk.begin * element, place, chunk.count * element);
    place += chunk.stride;
  }
}

Request Carrier::request_of(const Operation& operation, const Chunk& chunk) const {
  const std::int64_t blocks = has_blocks(operation.collective) ? group_.size() : 1;
  const std::int64_t count =
      has_blocks(operation.collective) ? chunk.stride * blocks / size_of(operation.dtype) : chunk.count;
  Request request{
      .collective = operation.collective,
      .view = {.buffer = buffer_, .offset_bytes = chunk.offset, .count = count, .dtype = operation.dtype},
      .reduction = operation.reduction,
      .root = operation.root};
  if (operation.collective == Collective::all_to_all) {
    request.output = request.view;
    request.output.offset_bytes += blocks * chunk.stride;
  }
  return request;
}

void Carrier::post(Operation operation) {
  auto under_way = std::make_shared<UnderWay>();
  under_way->operation = std::move(operation);
  under_way_.fetch_add(1);
  lane_.post([this, under_way] {
    const std::lock_guard turn(turn_);
    carry(under_way);
  });
}

void Carrier::run(Operation operation) {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (turn.owns_lock() && under_way_.load() == 0 && operation.count <= elements_of_chunk(operation)) {
    std::exception_ptr error;
    try {
      Chunk chunk = next_chunk(operation, 0);
      if (operation.collective == Collective::barrier) {
        group_.perform({.collective = Collective::barrier});
      } else if (operation.count > 0) {
        place(chunk);
        const Placed placed(*this, chunk);
        copy_in(operation, chunk);
        group_.perform(request_of(operation, chunk));
        copy_out(operation, chunk);
      }
    } catch (...) {
      error = std::current_exception();
    }
    turn.unlock();
    operation.done(error);
    return;
  }
  if (turn.owns_lock()) turn.unlock();
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  operation.done = [&, done = std::move(operation.done)](const std::exception_ptr& error) {
    done(error);
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  };
  post(std::move(operation));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended; });
}

// A group that has failed refuses what is issued, so what is left of an operation ends at once.
void Carrier::carry(const std::shared_ptr<UnderWay>& under_way) {
  const Operation& operation = under_way->operation;
  const auto issue = [&](const Request& request, Chunk chunk) {
    {
      const std::lock_guard lock(under_way->mutex);
      ++under_way->chunks;
    }
    try {
      group_.issue(request, [this, under_way, chunk](const CollectiveResult& result) {
        if (!result.error && chunk.count > 0) copy_out(under_way->operation, chunk);
        if (chunk.count > 0) give_back(chunk);
        chunk_ended(under_way, result.error);
      });
    } catch (...) {
      if (chunk.count > 0) give_back(chunk);
      chunk_ended(under_way, std::current_exception());
      throw;
    }
  };
  std::exception_ptr error;
  try {
    if (operation.collective == Collective::barrier) issue({.collective = Collective::barrier}, {});
    for (std::int64_t begin = 0; begin < operation.count;) {
      Chunk chunk = next_chunk(operation, begin);
      place(chunk);
      copy_in(operation, chunk);
      issue(request_of(operation, chunk), chunk);
      begin += chunk.count;
    }
  } catch (...) {
    error = std::current_exception();
  }
  chunk_ended(under_way, error);
}

void Carrier::chunk_ended(const std::shared_ptr<UnderWay>& under_way, std::exception_ptr error) {
  {
    const std::lock_guard lock(under_way->mutex);
    if (!under_way->error) under_way->error = std::move(error);
    if (--under_way->chunks > 0) return;
  }
  under_way->operation.done(under_way->error);
  under_way->operation = {};  // lets go of what was kept alive
  const std::lock_guard lock(mutex_);
  under_way_.fetch_sub(1);
  freed_.notify_all();
}

}  // namespace dear::distributed
