#include "dear/train/torch_backend/carrier.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/shard.h"

namespace dear::torch_backend {
namespace {

bool has_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         has_output(collective);
}

void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

// Elements [begin, begin + count) of every block, at `offset` of the staging memory, blocks `stride` bytes
// apart.
struct Carrier::Chunk {
  std::int64_t begin = 0, count = 0;
  std::int64_t stride = 0, offset = 0;
  std::int64_t head = 0;  // elements ahead of those: the sizes, in the first chunk of an all-to-all-v
  std::vector<std::int64_t> sent{}, received{};  // of an all-to-all-v, by block
  [[nodiscard]] std::int64_t end() const { return begin + count; }
};

namespace {

// What a rank tells another before an all-to-all-v.
struct Sizes {
  std::int64_t for_you = 0;  // elements
  std::int64_t most = 0;     // for any rank
};

std::int64_t head_of(const Operation& operation) {
  return std::int64_t{sizeof(Sizes)} / size_of(operation.dtype);
}

// The elements of a block of `all` that a chunk has.
std::int64_t part_of(std::int64_t all, std::int64_t begin, std::int64_t count) {
  return std::clamp<std::int64_t>(all - begin, 0, count);
}

}  // namespace

struct Carrier::UnderWay {
  Operation operation;
  std::optional<Chunk> chunk{};  // none where no place is taken
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

std::int64_t Carrier::blocks_of(const Operation& operation) const {
  return has_blocks(operation.collective) ? group_.size() : 1;
}

// An all-to-all has blocks on both sides.
std::int64_t Carrier::staged_blocks_of(const Operation& operation) const {
  return blocks_of(operation) * (has_output(operation.collective) ? 2 : 1);
}

std::int64_t Carrier::elements_of_chunk(const Operation& operation) const {
  const std::int64_t bytes = options_.chunk_bytes / staged_blocks_of(operation);
  return std::max(bytes / os::kCacheLineBytes * os::kCacheLineBytes, os::kCacheLineBytes) /
         size_of(operation.dtype);
}

Carrier::Chunk Carrier::chunk_at(const Operation& operation, std::int64_t begin, std::int64_t offset) const {
  const std::int64_t count = std::min(elements_of_chunk(operation), operation.count - begin);
  Chunk chunk{.begin = begin,
              .count = count,
              .stride = os::whole_cache_lines(count * size_of(operation.dtype)),
              .offset = offset};
  for (const std::int64_t all : operation.gives) chunk.sent.push_back(part_of(all, begin, count));
  chunk.received.resize(chunk.sent.size());
  return chunk;
}

Carrier::Chunk Carrier::first_chunk(const Operation& operation, std::int64_t offset) const {
  Chunk chunk = chunk_at(operation, 0, offset);
  if (operation.collective != Collective::all_to_all_v) return chunk;
  chunk.head = head_of(operation);
  chunk.stride = os::whole_cache_lines((chunk.head + chunk.count) * size_of(operation.dtype));
  for (std::int64_t& elements : chunk.sent) elements += chunk.head;
  return chunk;
}

void Carrier::give_sizes(const Operation& operation, const Chunk& chunk) const {
  const std::int64_t most = *std::max_element(operation.gives.begin(), operation.gives.end());
  std::byte* place = buffer_.data() + chunk.offset;
  for (const std::int64_t elements : operation.gives) {
    const Sizes sizes{.for_you = elements, .most = most};
    std::memcpy(place, &sizes, sizeof sizes);
    place += chunk.stride;
  }
}

void Carrier::take_sizes(Operation& operation, const Chunk& chunk) const {
  operation.count = 0;
  const std::byte* place = buffer_.data() + chunk.offset + group_.size() * chunk.stride;
  for (int rank = 0; rank < group_.size(); ++rank) {
    Sizes sizes;
    std::memcpy(&sizes, place, sizeof sizes);
    place += chunk.stride;
    operation.count = std::max(operation.count, sizes.most);
    const std::int64_t takes = operation.takes[static_cast<std::size_t>(rank)];
    if (sizes.for_you == takes) continue;
    const std::string difference = fmt::format(
        "all-to-all: rank {} sends {} bytes to rank {}, which takes {}: give matching split sizes", rank,
        sizes.for_you * size_of(operation.dtype), group_.rank(), takes * size_of(operation.dtype));
    group_.abort(difference);
    throw MismatchError(difference);
  }
}

// The place has as many bytes as the first chunk takes, which is the largest; of an all-to-all-v, whose size
// is not known, as many as a chunk can.
std::optional<std::int64_t> Carrier::place_at_once(const Operation& operation) {
  return ring_.take(first_chunk(operation, 0).stride * staged_blocks_of(operation));
}

std::int64_t Carrier::place(const Operation& operation) {
  if (!buffer_.region()) buffer_ = group_.allocate(options_.ring_bytes);
  std::unique_lock lock(mutex_);
  std::optional<std::int64_t> offset;
  freed_.wait(lock, [&] { return (offset = place_at_once(operation)).has_value(); });
  return *offset;
}

void Carrier::give_back(std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  ring_.give_back(offset);
  freed_.notify_all();
}

// Whether a reduce-scatter leaves this rank's own block where it lies: not where it ends within a cache line,
// which a shard would have whole.
bool Carrier::own_scattered(const Operation& operation, const Chunk& chunk) {
  return operation.collective == Collective::reduce_scatter &&
         chunk.count * size_of(operation.dtype) == chunk.stride;
}

// The one block of an all-gather is this rank's.
void Carrier::copy_in(const Operation& operation, const Chunk& chunk) const {
  if (operation.collective == Collective::broadcast && operation.root != group_.rank()) return;
  if (chunk.head > 0) give_sizes(operation, chunk);
  const std::int64_t element = size_of(operation.dtype);
  const std::int64_t first = operation.collective == Collective::all_gather ? group_.rank() : 0;
  std::byte* const place = buffer_.data() + chunk.offset + first * chunk.stride;
  if (operation.collective == Collective::all_reduce) {
    const Range own = shard_of(chunk.count, operation.dtype, group_.size(), group_.rank());
    const std::byte* const from = operation.from.front() + chunk.begin * element;
    copy(place, from, own.begin * element);
    copy(place + own.end * element, from + own.end * element, (chunk.count - own.end) * element);
    return;
  }
  for (std::size_t block = 0; block < operation.from.size(); ++block) {
    if (static_cast<int>(block) == group_.rank() && own_scattered(operation, chunk)) continue;
    const std::int64_t count = chunk.sent.empty() ? chunk.count : chunk.sent[block] - chunk.head;
    if (count == 0) continue;
    copy(place + static_cast<std::int64_t>(block) * chunk.stride + chunk.head * element,
         operation.from[block] + chunk.begin * element, count * element);
  }
}

void Carrier::copy_out(Operation& operation, const Chunk& chunk) const {
  if (chunk.head > 0) take_sizes(operation, chunk);
  const bool is_root = operation.root == group_.rank();
  if (own_scattered(operation, chunk) || (operation.collective == Collective::broadcast && is_root) ||
      (operation.collective == Collective::reduce && !is_root))
    return;
  const std::int64_t element = size_of(operation.dtype);
  const std::int64_t first = operation.collective == Collective::reduce_scatter ? group_.rank()
                             : has_output(operation.collective)                 ? group_.size()
                                                                                : 0;
  const std::byte* const place = buffer_.data() + chunk.offset + first * chunk.stride;
  if (operation.collective == Collective::all_reduce) {
    const Range own = shard_of(chunk.count, operation.dtype, group_.size(), group_.rank());
    std::byte* const to = operation.to.front() + chunk.begin * element;
    copy(to, place, own.begin * element);
    copy(to + own.end * element, place + own.end * element, (chunk.count - own.end) * element);
    return;
  }
  for (std::size_t block = 0; block < operation.to.size(); ++block) {
    const bool own =
        operation.collective == Collective::all_gather && static_cast<int>(block) == group_.rank();
    const std::int64_t count = chunk.received.empty() ? chunk.count : chunk.received[block] - chunk.head;
    if (count == 0) continue;
    copy(operation.to[block] + chunk.begin * element,
         own ? operation.from.front() + chunk.begin * element
             : place + static_cast<std::int64_t>(block) * chunk.stride + chunk.head * element,
         count * element);
  }
}

Request Carrier::request_of(const Operation& operation, Chunk& chunk) const {
  const std::int64_t element = size_of(operation.dtype);
  const std::int64_t blocks = blocks_of(operation);
  const std::int64_t count = has_blocks(operation.collective) ? chunk.stride * blocks / element : chunk.count;
  Request request{
      .collective = operation.collective,
      .view = {.buffer = buffer_, .offset_bytes = chunk.offset, .count = count, .dtype = operation.dtype},
      .reduction = operation.reduction,
      .root = operation.root};
  if (has_output(operation.collective)) {
    request.output = request.view;
    request.output.offset_bytes += blocks * chunk.stride;
    request.rows = {.sent = chunk.sent.data(), .received = chunk.received.data()};
  } else if (own_scattered(operation, chunk)) {
    request.own = {.from = operation.from[static_cast<std::size_t>(group_.rank())] + chunk.begin * element,
                   .to = operation.to.front() + chunk.begin * element};
  } else if (operation.collective == Collective::all_reduce) {
    const std::int64_t own =
        (chunk.begin + shard_of(chunk.count, operation.dtype, group_.size(), group_.rank()).begin) * element;
    request.own = {.from = operation.from.front() + own, .to = operation.to.front() + own};
  }
  return request;
}

// An all-to-all-v takes a whole chunk until its size is known.
void Carrier::expect_a_chunk(Operation& operation) const {
  if (operation.collective == Collective::all_to_all_v)
    operation.count = elements_of_chunk(operation) - head_of(operation);
}

void Carrier::post(Operation operation) {
  auto under_way = std::make_shared<UnderWay>();
  under_way->operation = std::move(operation);
  expect_a_chunk(under_way->operation);
  under_way_.fetch_add(1);
  std::unique_lock turn(turn_, std::try_to_lock);
  if (turn.owns_lock() && waiting_.load() == 0 && buffer_.region()) {
    const Operation& posted = under_way->operation;
    bool placed = posted.count == 0;
    if (!placed) {
      const std::lock_guard lock(mutex_);
      if (const auto offset = place_at_once(posted)) {
        under_way->chunk = first_chunk(posted, *offset);
        placed = true;
      }
    }
    if (placed) return carry(under_way);
  }
  waiting_.fetch_add(1);
  if (turn.owns_lock()) turn.unlock();
  lane_.post([this, under_way] {
    const std::lock_guard mine(turn_);
    carry(under_way);
    waiting_.fetch_sub(1);
  });
}

void Carrier::run(Operation operation) {
  std::unique_lock turn(turn_, std::try_to_lock);
  expect_a_chunk(operation);
  if (turn.owns_lock() && under_way_.load() == 0) {
    std::exception_ptr error;
    try {
      carry_here(operation);
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

void Carrier::carry_here(Operation& operation) {
  if (operation.collective == Collective::barrier) return group_.perform({.collective = Collective::barrier});
  if (operation.count == 0) return;
  const std::int64_t offset = place(operation);
  try {
    for (Chunk chunk = first_chunk(operation, offset);; chunk = chunk_at(operation, chunk.end(), offset)) {
      copy_in(operation, chunk);
      group_.perform(request_of(operation, chunk));
      copy_out(operation, chunk);
      if (chunk.end() >= operation.count) break;
    }
  } catch (...) {
    give_back(offset);
    throw;
  }
  give_back(offset);
}

// A group that has failed refuses what is issued.
void Carrier::carry(const std::shared_ptr<UnderWay>& under_way) {
  const Operation& operation = under_way->operation;
  try {
    const auto then = [this, under_way](const CollectiveResult& result) { ended(under_way, result.error); };
    if (operation.collective == Collective::barrier) {
      group_.issue({.collective = Collective::barrier}, then);
      return;
    }
    if (operation.count == 0) return ended(under_way, nullptr);
    if (!under_way->chunk) under_way->chunk = first_chunk(operation, place(operation));
    copy_in(operation, *under_way->chunk);
    const auto next = [this, under_way]() -> std::optional<Request> {
      Operation& carried = under_way->operation;
      Chunk& chunk = *under_way->chunk;
      copy_out(carried, chunk);
      if (chunk.end() >= carried.count) return std::nullopt;
      chunk = chunk_at(carried, chunk.end(), chunk.offset);
      copy_in(carried, chunk);
      return request_of(carried, chunk);
    };
    group_.issue(request_of(operation, *under_way->chunk), next, then);
  } catch (...) {
    ended(under_way, std::current_exception());
  }
}

void Carrier::ended(const std::shared_ptr<UnderWay>& under_way, const std::exception_ptr& error) {
  if (under_way->chunk) give_back(under_way->chunk->offset);
  under_way->operation.done(error);
  under_way->operation = {};  // lets go of what was kept alive
  const std::lock_guard lock(mutex_);
  under_way_.fetch_sub(1);
  freed_.notify_all();
}

}  // namespace dear::torch_backend
