#include "dear/comm/message_programs/message_graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/message_programs/hazards.h"

namespace dear::message_programs {
namespace {

using Node = MessageGraph::Node;

// A part of a message as it travels.
struct Cut {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool head = false;
};

std::vector<MemoryRange> chunks_of(const algorithm::BlockMessage& message, const std::vector<Range>& blocks,
                                   int blocks_of_vector) {
  std::vector<MemoryRange> chunks;
  for (const Range& range : message.blocks) {
    for (int block = range.begin; block < range.end; ++block) {
      const Range& bytes = blocks[static_cast<std::size_t>(block)];
      const bool in_output = block >= blocks_of_vector;
      if (bytes.empty()) {
        continue;
      }
      if (!chunks.empty() && chunks.back().in_output == in_output &&
          chunks.back().offset + chunks.back().bytes == bytes.begin) {
        chunks.back().bytes += bytes.size();
      } else {
        chunks.push_back({.offset = bytes.begin, .bytes = bytes.size(), .in_output = in_output});
      }
    }
  }
  return chunks;
}

std::int64_t bytes_of(const std::vector<MemoryRange>& chunks) {
  std::int64_t bytes = 0;
  for (const MemoryRange& chunk : chunks) {
    bytes += chunk.bytes;
  }
  return bytes;
}

// The chunks in which bytes [begin, end) lie.
std::vector<MemoryRange> part_of(const std::vector<MemoryRange>& chunks, std::int64_t begin,
                                 std::int64_t end) {
  std::vector<MemoryRange> part;
  std::int64_t at = 0;
  for (const MemoryRange& chunk : chunks) {
    const std::int64_t from = std::max(begin, at);
    const std::int64_t to = std::min(end, at + chunk.bytes);
    if (from < to) {
      part.push_back({.offset = chunk.offset + from - at, .bytes = to - from, .in_output = chunk.in_output});
    }
    at += chunk.bytes;
  }
  return part;
}

}  // namespace

struct MessageGraphBuilder::Impl {
  explicit Impl(const MessageGraphOptions& with) : options(with) {
    if (options.element_bytes < 1 || options.segment_bytes < 1) {
      throw ConfigError(fmt::format("a collective cannot be cut into segments of {} bytes of elements of {}",
                                    options.segment_bytes, options.element_bytes));
    }
    segment = std::max(options.element_bytes,
                       options.segment_bytes / options.element_bytes * options.element_bytes);
    graph.head_bytes = options.head_bytes;
    graph.agreed = options.agreed || options.head_bytes > 0;
    graph.most_ahead_bytes = options.most_ahead_bytes;
  }

  int peer(int rank) {
    const auto [place, fresh] = places.try_emplace(rank, static_cast<int>(graph.peers.size()));
    if (fresh) {
      graph.peers.push_back(rank);
      graph.sends.emplace_back();
    }
    return place->second;
  }

  // How a message of so many bytes travels, given whether it is the first on its way.
  [[nodiscard]] std::vector<Cut> cuts(std::int64_t bytes, bool first) const {
    std::vector<Cut> all;
    std::int64_t at = 0;
    if (first) {
      // Only a whole message that is not cut: so the segments of all rounds have the same borders.
      at = bytes <= std::min(kHeadRoom, segment) ? bytes : 0;
      all.push_back({.begin = 0, .end = at, .head = true});
    }
    for (; at < bytes; at += segment) {
      all.push_back({.begin = at, .end = std::min(bytes, at + segment)});
    }
    return all;
  }
  bool first_to(int rank) { return options.head_bytes > 0 && greeted_to.insert(rank).second; }
  bool first_from(int rank) { return options.head_bytes > 0 && greeted_from.insert(rank).second; }

  int node(Node::Kind kind, int rank, const std::vector<MemoryRange>& chunks) {
    Node made;
    made.kind = kind;
    made.peer = peer(rank);
    made.first_chunk = static_cast<int>(graph.chunks.size());
    made.chunks = static_cast<int>(chunks.size());
    made.bytes = bytes_of(chunks);
    graph.chunks.insert(graph.chunks.end(), chunks.begin(), chunks.end());
    graph.nodes.push_back(made);
    round_of.push_back(round);
    return static_cast<int>(graph.nodes.size()) - 1;
  }
  Node& at(int number) { return graph.nodes[static_cast<std::size_t>(number)]; }

  void reads(int number, const std::vector<MemoryRange>& chunks) {
    for (const MemoryRange& chunk : chunks) {
      (chunk.in_output ? output : vector).read(chunk.offset, chunk.offset + chunk.bytes, number, edges);
    }
  }
  void writes(int number, const std::vector<MemoryRange>& chunks) {
    for (const MemoryRange& chunk : chunks) {
      (chunk.in_output ? output : vector).write(chunk.offset, chunk.offset + chunk.bytes, number, edges);
    }
  }

  void send(int to, const std::vector<MemoryRange>& chunks, const Cut& cut) {
    const std::vector<MemoryRange> part = part_of(chunks, cut.begin, cut.end);
    const int number = node(Node::Kind::send, to, part);
    at(number).head = cut.head;
    reads(number, part);
    graph.sends[static_cast<std::size_t>(at(number).peer)].push_back(number);
    if (!cut.head && part.size() > 1) {
      graph.most_packed = std::max(graph.most_packed, at(number).bytes);
    }
  }

  void will_receive(int number) {
    graph.receives.push_back(number);
    if (!options.heads_first) return;
    const auto [first, is_first] = heads.try_emplace(at(number).peer, number);
    if (!is_first && first->second >= 0 && at(first->second).head) {
      edges.emplace_back(std::exchange(first->second, -1), number);
    }
  }

  int stage(int from, const std::vector<MemoryRange>& part, bool head) {
    const int number = node(Node::Kind::stage, from, {});
    at(number).bytes = bytes_of(part);
    at(number).head = head;
    will_receive(number);
    if (!head) {
      graph.most_staged = std::max(graph.most_staged, at(number).bytes);
    }
    return number;
  }

  void from_stages(Node::Kind kind, int from, const std::vector<MemoryRange>& part,
                   const std::vector<int>& sources) {
    const int number = node(kind, from, part);
    at(number).first_source = static_cast<int>(graph.sources.size());
    at(number).sources = static_cast<int>(sources.size());
    graph.sources.insert(graph.sources.end(), sources.begin(), sources.end());
    int stages = 0;
    for (const int source : sources) {
      if (source != MessageGraph::kOwn) {
        edges.emplace_back(source, number);
        ++stages;
      }
    }
    graph.slots = std::max(graph.slots, stages);
    writes(number, part);
  }

  void take(const algorithm::BlockMessage& message, const std::vector<MemoryRange>& chunks, bool add) {
    for (const Cut& cut : cuts(bytes_of(chunks), first_from(message.peer))) {
      const std::vector<MemoryRange> part = part_of(chunks, cut.begin, cut.end);
      if (!add && !cut.head && part.size() == 1) {
        const int number = node(Node::Kind::receive, message.peer, part);
        writes(number, part);
        will_receive(number);
        continue;
      }
      const int staged = stage(message.peer, part, cut.head);
      if (part.empty()) {
        continue;
      }
      if (add) {
        from_stages(Node::Kind::combine, message.peer, part, {MessageGraph::kOwn, staged});
      } else {
        from_stages(Node::Kind::scatter, message.peer, part, {staged});
      }
    }
  }

  void count_dependents();
  void pass_on();
  [[nodiscard]] int most_in_passing() const;

  MessageGraphOptions options;
  std::int64_t segment = 1;
  MessageGraph graph;
  int round = 0;
  std::vector<int> round_of;  // by node
  std::map<int, int> places;  // in graph.peers
  std::set<int> greeted_to;
  std::set<int> greeted_from;
  std::map<int, int> heads;  // by peer; -1 when something waits for it
  Hazards vector;
  Hazards output;
  Hazards::Edges edges;
};

MessageGraphBuilder::MessageGraphBuilder(const MessageGraphOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
MessageGraphBuilder::~MessageGraphBuilder() = default;

MessageGraphBuilder& MessageGraphBuilder::add(const algorithm::Program& program,
                                              const std::vector<Range>& blocks) {
  const int places = has_output(program.collective) ? 2 * program.blocks : program.blocks;
  const int rank = impl_->options.rank;
  if (std::cmp_not_equal(blocks.size(), places) || rank < 0 || rank >= program.ranks) {
    throw ConfigError(fmt::format("'{}' has {} blocks and {} ranks, not {} and a rank {}", program.name,
                                  places, program.ranks, blocks.size(), rank));
  }
  if (!program.copies.empty()) {
    for (const algorithm::Copy& copy : program.copies[static_cast<std::size_t>(rank)]) {
      const auto chunk = [&](int block) {
        const Range& bytes = blocks[static_cast<std::size_t>(block)];
        return MemoryRange{
            .offset = bytes.begin, .bytes = bytes.size(), .in_output = block >= program.blocks};
      };
      impl_->graph.copies.emplace_back(chunk(copy.from), chunk(copy.to));
    }
  }
  for (const std::vector<algorithm::Part>& round : program.rounds) {
    const algorithm::Part& part = round[static_cast<std::size_t>(rank)];
    for (const algorithm::BlockMessage& message : part.sends) {
      const std::vector<MemoryRange> chunks = chunks_of(message, blocks, program.blocks);
      for (const Cut& cut : impl_->cuts(bytes_of(chunks), impl_->first_to(message.peer))) {
        impl_->send(message.peer, chunks, cut);
      }
    }
    for (const algorithm::BlockMessage& message : part.receives) {
      impl_->take(message, chunks_of(message, blocks, program.blocks), false);
    }
    for (const algorithm::BlockMessage& message : part.reduces) {
      impl_->take(message, chunks_of(message, blocks, program.blocks), true);
    }
    ++impl_->round;
  }
  return *this;
}

MessageGraphBuilder& MessageGraphBuilder::add_direct_reduce_scatter(const std::vector<Range>& blocks,
                                                                    SentFrom sent_from) {
  const int ranks = static_cast<int>(blocks.size());
  const int rank = impl_->options.rank;
  // All messages have heads or none has, so those for one block are cut alike.
  const bool first = impl_->options.head_bytes > 0;
  std::vector<std::vector<Cut>> cuts;
  std::size_t longest = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank && (impl_->first_to(peer) != first || impl_->first_from(peer) != first)) {
      throw ConfigError("a direct reduce-scatter has to come first in a graph with heads");
    }
    cuts.push_back(impl_->cuts(blocks[static_cast<std::size_t>(peer)].size(), first));
    longest = std::max(longest, cuts.back().size());
  }
  const auto chunks_of_rank = [&](int of) {
    const Range& bytes = blocks[static_cast<std::size_t>(of)];
    return std::vector<MemoryRange>{{.offset = bytes.begin, .bytes = bytes.size()}};
  };
  const std::vector<MemoryRange> own = chunks_of_rank(rank);
  for (std::size_t number = 0; number < longest; ++number) {
    std::vector<int> sources(static_cast<std::size_t>(ranks), MessageGraph::kOwn);
    const bool more_of_own = number < cuts[static_cast<std::size_t>(rank)].size();
    for (int step = 1; step < ranks; ++step) {
      const int to = (rank + step) % ranks;
      if (number < cuts[static_cast<std::size_t>(to)].size()) {
        std::vector<MemoryRange> sent = chunks_of_rank(to);
        sent.front().in_output = sent_from == SentFrom::output;
        impl_->send(to, sent, cuts[static_cast<std::size_t>(to)][number]);
      }
      if (more_of_own) {
        const Cut& cut = cuts[static_cast<std::size_t>(rank)][number];
        const int from = (rank + ranks - step) % ranks;
        sources[static_cast<std::size_t>(from)] =
            impl_->stage(from, part_of(own, cut.begin, cut.end), cut.head);
      }
    }
    if (more_of_own && ranks > 1) {
      const Cut& cut = cuts[static_cast<std::size_t>(rank)][number];
      const std::vector<MemoryRange> part = part_of(own, cut.begin, cut.end);
      if (!part.empty()) {
        impl_->from_stages(Node::Kind::combine, (rank + 1) % ranks, part, sources);
      }
    }
  }
  return *this;
}

void MessageGraphBuilder::Impl::count_dependents() {
  for (const auto& [before, after] : edges) {
    ++at(before).dependents;
    ++at(after).waits_for;
  }
  int place = 0;
  for (Node& node : graph.nodes) {
    node.first_dependent = place;
    place += node.dependents;
    node.dependents = 0;
  }
  graph.dependents.resize(edges.size());
  for (const auto& [before, after] : edges) {
    Node& node = at(before);
    const int in_list = node.first_dependent + node.dependents++;
    graph.dependents[static_cast<std::size_t>(in_list)] = after;
  }
}

// A sum that only one send reads need not be written to memory.
void MessageGraphBuilder::Impl::pass_on() {
  const auto chunk = [&](const Node& node) -> const MemoryRange& {
    return graph.chunks[static_cast<std::size_t>(node.first_chunk)];
  };
  for (Node& sum : graph.nodes) {
    if (sum.kind != Node::Kind::combine || sum.chunks != 1 || sum.sources != 2 || sum.dependents != 1) {
      continue;
    }
    Node& reader = at(graph.dependents[static_cast<std::size_t>(sum.first_dependent)]);
    if (reader.kind != Node::Kind::send || reader.chunks != 1 || reader.dependents != 0 ||
        chunk(reader) != chunk(sum)) {
      continue;
    }
    sum.in_passing = reader.in_passing = true;
    reader.first_source = sum.first_source + 1;  // behind the rank's own
    reader.sources = 1;
  }
}

// Slots that may be held when all messages of earlier rounds are through: those of sums that this round
// receives, and of those that it sends.
int MessageGraphBuilder::Impl::most_in_passing() const {
  std::vector<int> held(static_cast<std::size_t>(round) + 1);
  for (std::size_t number = 0; number < graph.nodes.size(); ++number) {
    const Node& sent = graph.nodes[number];
    if (sent.kind != Node::Kind::send || !sent.in_passing) {
      continue;
    }
    const auto stage = static_cast<std::size_t>(graph.sources[static_cast<std::size_t>(sent.first_source)]);
    for (int one = graph.nodes[stage].head ? round + 1 : round_of[stage]; one <= round_of[number]; ++one) {
      ++held[static_cast<std::size_t>(one)];
    }
  }
  return *std::max_element(held.begin(), held.end());
}

MessageGraph MessageGraphBuilder::finish() {
  MessageGraph& graph = impl_->graph;
  impl_->count_dependents();
  if (impl_->options.adds_in_passing) {
    impl_->pass_on();
    graph.slots_in_passing = impl_->most_in_passing();
  }
  graph.slots = graph.most_staged > 0 ? std::max(4, 2 * graph.slots) + graph.slots_in_passing : 0;
  return std::move(graph);
}

bool MessageGraph::writes_only(const Range& range) const {
  return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    if (node.kind == Node::Kind::send || node.kind == Node::Kind::stage || node.in_passing) {
      return true;
    }
    const auto first = chunks.begin() + node.first_chunk;
    return std::all_of(first, first + node.chunks, [&](const MemoryRange& chunk) {
      return chunk.in_output || (range.begin <= chunk.offset && chunk.offset + chunk.bytes <= range.end);
    });
  });
}

}  // namespace dear::message_programs
