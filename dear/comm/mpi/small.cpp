#include "dear/comm/mpi/small.h"

#include <algorithm>
#include <cstring>

#include "dear/comm/group/reduce.h"
#include "dear/comm/group/shard.h"

namespace dear::backends {
namespace {

// With more ranks than this a tree of messages is quicker than a message from each rank.
constexpr int kMostRanks = 16;
// The longest part of a vector that goes to one rank. Longer parts would take much memory, of which programs
// need less.
constexpr std::int64_t kMostBytes = 4 * 1024;
// The data begins on a cache line, and the heading ends there.
constexpr std::int64_t kBeforeData = 64;
constexpr std::int64_t kLongestHeading = sizeof(comm::Heading);
static_assert(kLongestHeading <= kBeforeData);

}  // namespace

// The peers behind this rank first, so that not all send to the same one at once.
SmallCollectives::SmallCollectives(channels::Mpi& mpi) : mpi_(mpi), rank_(mpi.rank()), size_(mpi.size()) {
  if (!can_compare()) {
    return;
  }
  room_ = kBeforeData + kMostBytes + kLongestHeading;
  room_ += -room_ & (kBeforeData - 1);  // whole lines
  memory_.resize(static_cast<std::size_t>(2 * size_ * room_) / sizeof(Line));
  first_ = reinterpret_cast<std::byte*>(memory_.data()) + kBeforeData;
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    messages_.push_back({.peer = peer});
  }
}

bool SmallCollectives::can_compare() const { return size_ >= 2 && size_ <= kMostRanks; }

bool SmallCollectives::can(const Request& request) const {
  if (!can_compare()) {
    return false;
  }
  const View& view = request.view;
  switch (request.collective) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return view.count * size_of(view.dtype) <=
             kMostBytes * size_;  // shards are whole lines, and so is that
    case Collective::all_reduce:
      return view.count * size_of(view.dtype) * size_ <= kMostBytes;
    default:
      return false;
  }
}

void SmallCollectives::exchange(const comm::Heading& mine, const channels::Channels::Describe& what,
                                Deadline deadline) {
  if (const std::optional<std::uint64_t> bits = message_programs::packed(mine)) {
    exchange_behind(*bits, mine, what, deadline);
  } else {
    exchange_behind(mine, mine, what, deadline);
  }
}

template <typename Written>
void SmallCollectives::exchange_behind(const Written& heading, const comm::Heading& mine,
                                       const channels::Channels::Describe& what, Deadline deadline) {
  constexpr auto kLength = static_cast<std::int64_t>(sizeof heading);
  for (channels::EagerMessage& message : messages_) {
    std::byte* const begin = out(message.peer) - kLength;
    std::memcpy(begin, &heading, sizeof heading);
    message.out = begin;
    message.bytes += kLength;
    message.in = in(message.peer) - kLength;
    message.room = kMostBytes + kLongestHeading;
  }
  mpi_.exchange(messages_, 0, what, deadline);
  for (const channels::EagerMessage& message : messages_) {
    Written theirs;
    std::memcpy(&theirs, message.in, sizeof theirs);
    if (!(theirs == heading)) {
      message_programs::throw_on_mismatch(
          mine, rank_, message_programs::read_heading(message.in, mine.sequence), message.peer);
    }
  }
}

void SmallCollectives::compare(const Request& request, std::uint64_t sequence,
                               const channels::Channels::Describe& what, Deadline deadline) {
  for (channels::EagerMessage& message : messages_) {
    message.bytes = 0;
  }
  exchange(comm::heading_of(sequence, request), what, deadline);
}

void SmallCollectives::run(const Request& request, std::uint64_t sequence,
                           const channels::Channels::Describe& what, Deadline deadline) {
  const View& view = request.view;
  const std::int64_t element = size_of(view.dtype);
  std::byte* const vector = view.count > 0 ? view.buffer.data() + view.offset_bytes : nullptr;
  const bool whole = request.collective == Collective::all_reduce;
  const bool gathers = request.collective == Collective::all_gather;
  const std::int64_t block = whole ? view.count : shard_of(view.count, view.dtype, size_, 0).size();
  // The part of the vector that belongs to a rank, in bytes.
  const auto part = [&](int rank) {
    const std::int64_t begin = whole ? 0 : std::min(view.count, rank * block);
    return Range{.begin = begin * element, .end = std::min(view.count, begin + block) * element};
  };
  for (channels::EagerMessage& message : messages_) {
    const Range sent = part(gathers ? rank_ : message.peer);
    if (!sent.empty()) {
      std::memcpy(out(message.peer), vector + sent.begin, static_cast<std::size_t>(sent.size()));
    }
    message.bytes = sent.size();
  }
  exchange(comm::heading_of(sequence, request), what, deadline);
  if (gathers) {
    for (const channels::EagerMessage& message : messages_) {
      const Range shard = part(message.peer);
      if (!shard.empty()) {
        std::memcpy(vector + shard.begin, in(message.peer), static_cast<std::size_t>(shard.size()));
      }
    }
    return;
  }
  const Range reduced = part(rank_);
  if (reduced.empty()) {
    return;
  }
  std::byte* const result = vector + reduced.begin;
  sources_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    sources_.push_back(rank == rank_ ? result : in(rank));
  }
  comm::reduce(view.dtype, request.reduction, sources_, result, reduced.size() / element);
}

}  // namespace dear::backends
