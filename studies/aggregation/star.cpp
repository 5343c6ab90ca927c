#include "studies/aggregation/star.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/reduce.h"

namespace dear::studies::aggregation {
namespace {

constexpr int kAggregatorEnd = 0, kWorkerEnd = 1;  // of a link
constexpr std::int64_t kLine = 64;
// A piece is this part of a message, so that little time passes before the first piece is there and after the
// last one has come; but neither so small that starting it takes longer than carrying it (over messages, all
// links of the aggregator take turns on its channels), nor larger than a cache.
constexpr std::int64_t kPieces = 10, kLeastPiece = 64 << 10, kMostPiece = 1 << 20;

// The heading that travels ahead of a message.
struct Head {
  std::int64_t words = 0, values = 0;
  std::uint64_t label = 0;
  std::int32_t dtype = 0, last = 0;
  friend bool operator==(const Head&, const Head&) = default;
};

std::string describe(const Head& head) {
  if (head.last != 0) return "has finished";
  return fmt::format("sends {} words and {} {} (label {:x})", head.words, head.values,
                     name_of(static_cast<DType>(head.dtype)), head.label);
}

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Where the parts of a message lie.
struct Places {
  explicit Places(const Message& message)
      : word_bytes(message.words * size_of(DType::i64)),
        values_at(whole_lines(word_bytes)),
        value_bytes(message.values * size_of(message.dtype)) {}
  std::int64_t word_bytes, values_at, value_bytes;
  [[nodiscard]] std::int64_t bytes() const { return values_at + value_bytes; }
  [[nodiscard]] std::int64_t travelling() const { return word_bytes + value_bytes; }
};

struct Piece {
  std::int64_t begin = 0, bytes = 0;
  DType dtype = DType::i64;
  Reduction reduction = Reduction::sum;
};

std::vector<Piece> pieces_of(const Message& message) {
  const Places places(message);
  const std::int64_t most = whole_lines(std::clamp(places.travelling() / kPieces, kLeastPiece, kMostPiece));
  std::vector<Piece> pieces;
  const auto cut = [&](std::int64_t begin, std::int64_t bytes, DType dtype, Reduction reduction) {
    for (std::int64_t done = 0; done < bytes; done += most)
      pieces.push_back({begin + done, std::min(most, bytes - done), dtype, reduction});
  };
  cut(0, places.word_bytes, DType::i64, Reduction::bitwise_or);
  cut(places.values_at, places.value_bytes, message.dtype, Reduction::sum);
  return pieces;
}

Pending carry(const Group& group, const Buffer& buffer, const Piece& piece, int from) {
  return group.broadcast(
      {.buffer = buffer, .offset_bytes = piece.begin, .count = piece.bytes, .dtype = DType::u8}, from);
}

Pending carry_head(const Link& link) {
  return link.up.broadcast({.buffer = link.head, .count = sizeof(Head), .dtype = DType::u8}, kWorkerEnd);
}

Payload payload_in(const Buffer& buffer, const Message& message) {
  const Places places(message);
  std::byte* const data = buffer.data();
  if (places.travelling() == 0) return {};
  return {.words = {reinterpret_cast<std::uint64_t*>(data), static_cast<std::size_t>(message.words)},
          .values = {data + places.values_at, static_cast<std::size_t>(places.value_bytes)}};
}

// All ranks make the links of all workers, one after another.
std::vector<Link> make_links(const Group& group) {
  if (group.size() < 2) {
    throw ConfigError(
        "rank 0 is alone, but an aggregation has at least one worker beside the aggregator: start one rank "
        "more than there are workers");
  }
  const int aggregator = group.size() - 1;
  std::vector<Link> links;
  for (int worker = 0; worker < aggregator; ++worker) {
    const bool mine = group.rank() == worker || group.rank() == aggregator;
    const std::optional<Group> up = group.split(mine ? 0 : -1, group.rank() == aggregator ? 0 : 1);
    if (!up) continue;
    const Group down = up->duplicate();
    links.push_back({.up = *up, .down = down, .head = up->allocate(sizeof(Head)), .sent = {}, .summed = {}});
  }
  return links;
}

// A failure here is one on all ranks, for the same reason.
template <typename Function>
auto guarded(const Group& group, const Function& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    group.abort(error.what());
    throw;
  }
}

}  // namespace

void Link::make_room(std::int64_t bytes) {
  if (bytes <= sent.bytes()) return;
  sent = up.allocate(bytes);
  summed = down.allocate(bytes);
}

Worker::Worker(const Group& group) : group_(group), link_(make_links(group).front()) {}

void Worker::announce(const Message& message, bool last) {
  announced_.wait();  // a message that was prepared and never sent
  const Head head{.words = message.words,
                  .values = message.values,
                  .label = message.label,
                  .dtype = static_cast<std::int32_t>(message.dtype),
                  .last = last ? 1 : 0};
  std::memcpy(link_.head.data(), &head, sizeof head);
  announced_ = carry_head(link_);
  traffic_.sent += static_cast<std::int64_t>(sizeof head);
}

Payload Worker::prepare(const Message& message) {
  return guarded(group_, [&] {
    announce(message, false);
    message_ = message;
    link_.make_room(Places(message).bytes());
    return payload_in(link_.sent, message);
  });
}

Payload Worker::exchange(const Came& came) {
  return guarded(group_, [&] {
    std::vector<Pending> sent{announced_}, received;
    const std::vector<Piece> pieces = pieces_of(message_);
    for (const Piece& piece : pieces) sent.push_back(carry(link_.up, link_.sent, piece, kWorkerEnd));
    for (const Piece& piece : pieces)
      received.push_back(carry(link_.down, link_.summed, piece, kAggregatorEnd));
    const Payload sums = payload_in(link_.summed, message_);
    const Places places(message_);
    const auto words =
        static_cast<std::size_t>(std::ranges::count(pieces, Reduction::bitwise_or, &Piece::reduction));
    for (std::size_t i = 0; i < words; ++i) received[i].wait();
    if (came) came(sums, 0);
    for (std::size_t i = words; i < pieces.size(); ++i) {
      received[i].wait();
      const std::int64_t bytes = pieces[i].begin + pieces[i].bytes - places.values_at;
      if (came) came(sums, bytes / size_of(message_.dtype));
    }
    for (const Pending& pending : sent) pending.wait();
    traffic_.sent += places.travelling();
    traffic_.received += places.travelling();
    return sums;
  });
}

void Worker::finish() {
  guarded(group_, [&] {
    announce({}, true);
    announced_.wait();
  });
}

Aggregator::Aggregator(const Group& group) : group_(group), links_(make_links(group)) {}

bool Aggregator::serve() {
  return guarded(group_, [&] {
    std::vector<Pending> announced;
    for (const Link& link : links_) announced.push_back(carry_head(link));
    Head first;
    for (std::size_t worker = 0; worker < links_.size(); ++worker) {
      announced[worker].wait();
      Head head;
      std::memcpy(&head, links_[worker].head.data(), sizeof head);
      if (worker == 0) first = head;
      if (head == first) continue;
      throw MismatchError(
          fmt::format("worker rank {} {}, and worker rank 0 {}: all workers must send messages of the same "
                      "sizes and shape",
                      worker, describe(head), describe(first)));
    }
    if (first.last != 0) return false;
    add({.words = first.words,
         .values = first.values,
         .dtype = static_cast<DType>(first.dtype),
         .label = first.label});
    return true;
  });
}

void Aggregator::add(const Message& message) {
  for (Link& link : links_) link.make_room(Places(message).bytes());
  const std::vector<Piece> pieces = pieces_of(message);
  std::vector<std::vector<Pending>> received(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (const Link& link : links_) received[i].push_back(carry(link.up, link.sent, pieces[i], kWorkerEnd));
  }
  std::vector<Pending> sent;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    for (const Pending& pending : received[i]) pending.wait();
    std::vector<const std::byte*> sources;
    for (const Link& link : links_) sources.push_back(link.sent.data() + piece.begin);
    std::byte* const sum = links_.front().summed.data() + piece.begin;
    comm::reduce(piece.dtype, piece.reduction, sources, sum, piece.bytes / size_of(piece.dtype));
    for (const Link& link : links_) {
      if (&link != &links_.front())
        std::memcpy(link.summed.data() + piece.begin, sum, static_cast<std::size_t>(piece.bytes));
      sent.push_back(carry(link.down, link.summed, piece, kAggregatorEnd));
    }
  }
  for (const Pending& pending : sent) pending.wait();
}

}  // namespace dear::studies::aggregation
