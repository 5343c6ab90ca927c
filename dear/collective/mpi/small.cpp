#include "dear/collective/mpi/small.h"

#include <algorithm>
#include <cstring>

#include "dear/collective/reduce.h"
#include "dear/collective/shard.h"

namespace dear::collective {
namespace {

// From more ranks a tree of messages is quicker than one from each.
constexpr int kMostRanks = 16;
// The longest message. Beyond it memory is what counts, and programs are kinder to it.
constexpr std::int64_t kMostBytes = 4 * 1024;
// A heading, and the data behind it at a place that suits every type.
constexpr std::int64_t kData = 64;
static_assert(sizeof(Heading) <= kData);
constexpr std::int64_t kRoom = kData + kMostBytes;

}  // namespace

SmallCollectives::SmallCollectives(transport::Mpi& mpi) : mpi_(mpi), rank_(mpi.rank()), size_(mpi.size()) {
  if (size_ <= kMostRanks) {
    memory_.resize(static_cast<std::size_t>(2 * size_ * kRoom + kData));
    letters_.resize(static_cast<std::size_t>(size_));
  }
}

std::byte* SmallCollectives::out(int peer) { return memory_.data() + 2 * peer * kRoom; }
std::byte* SmallCollectives::in(int peer) { return out(peer) + kRoom; }

bool SmallCollectives::can_compare() const { return size_ >= 2 && size_ <= kMostRanks; }

bool SmallCollectives::can(const Request& request) const {
  if (!can_compare()) {
    return false;
  }
  const View& view = request.view;
  switch (request.operation) {
    case Operation::reduce_scatter:
    case Operation::all_gather:
      return shard_of(view.count, view.dtype, size_, 0).count() * size_of(view.dtype) <= kMostBytes;
    case Operation::all_reduce:
      return view.count * size_of(view.dtype) * size_ <= kMostBytes;
    default:
      return false;
  }
}

void SmallCollectives::exchange(const Heading& mine, const transport::Channels::Describe& what,
                                Deadline deadline) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      std::memcpy(out(peer), &mine, sizeof mine);
    }
  }
  mpi_.exchange(letters_, 0, what, deadline);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      Heading theirs;
      std::memcpy(&theirs, in(peer), sizeof theirs);
      throw_on_mismatch(mine, rank_, theirs, peer);
    }
  }
}

void SmallCollectives::compare(const Request& request, std::uint64_t sequence,
                               const transport::Channels::Describe& what, Deadline deadline) {
  for (int peer = 0; peer < size_; ++peer) {
    letters_[static_cast<std::size_t>(peer)] = {
        .out = out(peer), .bytes = kData, .in = in(peer), .room = kRoom};
  }
  exchange(heading_of(sequence, request), what, deadline);
}

void SmallCollectives::run(const Request& request, std::uint64_t sequence,
                           const transport::Channels::Describe& what, Deadline deadline) {
  const View& view = request.view;
  const std::int64_t element = size_of(view.dtype);
  std::byte* const vector = view.count > 0 ? view.buffer.data() + view.offset_bytes : nullptr;
  const bool whole = request.operation == Operation::all_reduce;
  const bool gathers = request.operation == Operation::all_gather;
  const std::int64_t block = whole ? view.count : shard_of(view.count, view.dtype, size_, 0).count();
  const auto part = [&](int rank) {
    const std::int64_t begin = whole ? 0 : std::min(view.count, rank * block);
    return Range{.begin = begin, .end = std::min(view.count, begin + block)};
  };
  const Heading mine = heading_of(sequence, request);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    const Range sent = part(gathers ? rank_ : peer);
    std::byte* const letter = out(peer);
    if (sent.count() > 0) {
      std::memcpy(letter + kData, vector + sent.begin * element,
                  static_cast<std::size_t>(sent.count() * element));
    }
    letters_[static_cast<std::size_t>(peer)] = {
        .out = letter, .bytes = kData + sent.count() * element, .in = in(peer), .room = kRoom};
  }
  exchange(mine, what, deadline);
  if (gathers) {
    for (int peer = 0; peer < size_; ++peer) {
      const Range shard = part(peer);
      if (peer != rank_ && shard.count() > 0) {
        std::memcpy(vector + shard.begin * element, in(peer) + kData,
                    static_cast<std::size_t>(shard.count() * element));
      }
    }
    return;
  }
  const Range reduced = part(rank_);
  if (reduced.count() == 0) {
    return;
  }
  std::byte* const result = vector + reduced.begin * element;
  sources_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    sources_.push_back(rank == rank_ ? result : in(rank) + kData);
  }
  reduce(view.dtype, request.reduction, sources_, result, reduced.count());
}

}  // namespace dear::collective
