#include "dear/comm/message_programs/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "dear/base/os/cache_line.h"

namespace dear::message_programs {
namespace {

using Node = MessageGraph::Node;
using Kind = Node::Kind;

constexpr std::size_t kSendsAtOnce = 4;     // to one peer
constexpr std::size_t kReceivesAtOnce = 8;  // over all, unless there are more slots

struct InFlight {
  channels::Transfer transfer;
  int node = -1;
};

// The messages on their way to one peer, the oldest first.
struct Lane {
  std::array<InFlight, kSendsAtOnce> transfers;
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t next = 0;  // in the graph's list
  bool packing = false;  // its packing memory is on its way

  InFlight& oldest() { return transfers[begin]; }
  InFlight& add() { return transfers[(begin + count++) % kSendsAtOnce]; }
  void drop() {
    begin = (begin + 1) % kSendsAtOnce;
    --count;
  }
};

}  // namespace

std::byte* StagingMemory::take(std::int64_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(
        ::operator new[](static_cast<std::size_t>(bytes), std::align_val_t{os::kCacheLineBytes})));
    bytes_ = bytes;
  }
  return memory_.get();
}

void StagingMemory::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{os::kCacheLineBytes});
}

struct Executor::Impl {
  explicit Impl(MessageGraph with) : graph(std::move(with)), lanes(graph.peers.size()) {
    for (const Node& node : graph.nodes) {
      waits_at_first.push_back(node.waits_for);
    }
    slot_bytes = os::whole_cache_lines(graph.most_staged);
    pack_bytes = os::whole_cache_lines(graph.most_packed);
    head_bytes = graph.head_bytes > 0 ? graph.head_bytes + kHeadRoom : 0;
    posted.resize(std::max(kReceivesAtOnce, static_cast<std::size_t>(graph.slots - graph.slots_in_passing)));
    staged_at.resize(graph.nodes.size());
    ready.reserve(graph.nodes.size());
  }

  const Node& node(int number) const { return graph.nodes[static_cast<std::size_t>(number)]; }
  std::span<const MemoryRange> chunks(const Node& of) const {
    return std::span(graph.chunks)
        .subspan(static_cast<std::size_t>(of.first_chunk), static_cast<std::size_t>(of.chunks));
  }
  std::span<const int> sources_of(const Node& of) const {
    return std::span(graph.sources)
        .subspan(static_cast<std::size_t>(of.first_source), static_cast<std::size_t>(of.sources));
  }
  std::byte* memory(const MemoryRange& chunk) const {
    return (chunk.in_output ? now->output : now->data) + chunk.offset;
  }
  // What a send takes that has this chunk.
  const std::byte* sent_from(const Node& send, const MemoryRange& chunk) const {
    return send.in_passing ? staged_at[static_cast<std::size_t>(sources_of(send).front())] : memory(chunk);
  }
  // The staged bytes have no reader any more.
  void free_slot(int stage) {
    if (!node(stage).head) {
      free_slots.push_back(staged_at[static_cast<std::size_t>(stage)]);
    }
  }

  // Staging memory: heads in, heads out, packing memory by peer, slots.
  [[nodiscard]] std::int64_t stage_bytes() const {
    return static_cast<std::int64_t>(graph.peers.size()) *
               (2 * os::whole_cache_lines(head_bytes) + pack_bytes) +
           graph.slots * slot_bytes;
  }
  [[nodiscard]] std::byte* head_in(int peer) const {
    return staging + peer * os::whole_cache_lines(head_bytes);
  }
  [[nodiscard]] std::byte* head_out(int peer) const {
    return head_in(static_cast<int>(graph.peers.size())) + peer * os::whole_cache_lines(head_bytes);
  }
  [[nodiscard]] std::byte* packing(int peer) const {
    return head_out(static_cast<int>(graph.peers.size())) + peer * pack_bytes;
  }

  void begin(const ExecutionArguments& arguments, channels::Channels& with, StagingMemory& stage) {
    now = &arguments;
    channels = &with;
    staging = stage.take(stage_bytes());
    waits = waits_at_first;
    unfinished = graph.nodes.size();
    next_receive = 0;
    bytes_ahead = 0;
    for (Lane& lane : lanes) {
      lane.begin = lane.count = lane.next = 0;
      lane.packing = false;
    }
    idle.clear();
    for (std::size_t i = posted.size(); i > 0; --i) {
      idle.push_back(i - 1);
    }
    active.clear();
    free_slots.clear();
    std::byte* slots = packing(static_cast<int>(graph.peers.size()));
    for (int i = graph.slots; i > 0; --i) {
      free_slots.push_back(slots + (i - 1) * slot_bytes);
    }
    for (const auto& [from, to] : graph.copies) {
      if (from.bytes > 0) {
        std::memmove(memory(to), memory(from), static_cast<std::size_t>(from.bytes));
      }
    }
  }

  void start_sends(std::size_t peer);
  void start_receives();
  void harvest();
  void finish(int number);
  void run(const Node& local);
  void combine(const Node& local);
  void scatter(const Node& local);

  MessageGraph graph;
  std::vector<int> waits_at_first;
  std::int64_t slot_bytes = 0;
  std::int64_t pack_bytes = 0;
  std::int64_t head_bytes = 0;  // of the message

  const ExecutionArguments* now = nullptr;
  channels::Channels* channels = nullptr;
  std::byte* staging = nullptr;
  std::vector<int> waits;  // by node
  std::size_t unfinished = 0;
  std::vector<Lane> lanes;  // by peer
  std::size_t next_receive = 0;
  std::vector<InFlight> posted;
  std::vector<std::size_t> active;  // of posted
  std::int64_t bytes_ahead = 0;     // of these
  std::vector<std::size_t> idle;
  std::vector<std::byte*> staged_at;  // by node
  std::vector<std::byte*> free_slots;
  std::vector<int> ready;  // finished or runnable, not followed up yet
  std::vector<const std::byte*> sources;
};

void Executor::Impl::start_sends(std::size_t peer) {
  Lane& lane = lanes[peer];
  const std::vector<int>& list = graph.sends[peer];
  while (lane.next < list.size() && lane.count < kSendsAtOnce) {
    const int number = list[lane.next];
    const Node& one = node(number);
    const bool packed = !one.head && one.chunks > 1;
    if (waits[static_cast<std::size_t>(number)] > 0 || (packed && lane.packing)) {
      return;
    }
    InFlight& sent = lane.add();
    sent.node = number;
    sent.transfer = {.direction = channels::Transfer::Direction::send,
                     .peer = graph.peers[peer],
                     .tag = now->tag,
                     .data = nullptr,
                     .bytes = one.head ? head_bytes : one.bytes,
                     .agreed = graph.agreed && !one.head};
    if (!one.head && one.chunks == 1) {
      // The const_cast is safe, since channels only read what they send.
      sent.transfer.data = const_cast<std::byte*>(sent_from(one, chunks(one).front()));
    } else {
      std::byte* into = one.head ? head_out(one.peer) : packing(one.peer);
      sent.transfer.data = into;
      if (one.head) {
        std::memcpy(into, now->head, static_cast<std::size_t>(graph.head_bytes));
        into += graph.head_bytes;
        std::memset(into + one.bytes, 0, static_cast<std::size_t>(kHeadRoom - one.bytes));
      }
      for (const MemoryRange& chunk : chunks(one)) {
        std::memcpy(into, sent_from(one, chunk), static_cast<std::size_t>(chunk.bytes));
        into += chunk.bytes;
      }
      lane.packing |= packed;
    }
    channels->start(sent.transfer);
    ++lane.next;
  }
}

void Executor::Impl::start_receives() {
  while (next_receive < graph.receives.size() && !idle.empty()) {
    const int number = graph.receives[next_receive];
    const Node& one = node(number);
    const bool needs_slot = one.kind == Kind::stage && !one.head;
    const bool far_ahead = !active.empty() && one.bytes > graph.most_ahead_bytes - bytes_ahead;
    if (waits[static_cast<std::size_t>(number)] > 0 || (needs_slot && free_slots.empty()) || far_ahead) {
      return;
    }
    const std::size_t place = idle.back();
    idle.pop_back();
    active.push_back(place);
    std::byte* into = nullptr;
    if (needs_slot) {
      into = free_slots.back();
      free_slots.pop_back();
      staged_at[static_cast<std::size_t>(number)] = into;
    } else if (one.head) {
      into = head_in(one.peer);
      staged_at[static_cast<std::size_t>(number)] = into + graph.head_bytes;
    } else {
      into = memory(chunks(one).front());
    }
    InFlight& received = posted[place];
    received.node = number;
    received.transfer = {.direction = channels::Transfer::Direction::receive,
                         .peer = graph.peers[static_cast<std::size_t>(one.peer)],
                         .tag = now->tag,
                         .data = into,
                         .bytes = one.head ? head_bytes : one.bytes,
                         .agreed = graph.agreed && !one.head};
    bytes_ahead += received.transfer.bytes;
    channels->start(received.transfer);
    ++next_receive;
  }
}

void Executor::Impl::harvest() {
  for (Lane& lane : lanes) {
    while (lane.count > 0 && lane.oldest().transfer.done) {
      const int number = lane.oldest().node;
      lane.drop();
      const Node& one = node(number);
      lane.packing = lane.packing && (one.head || one.chunks < 2);
      if (one.in_passing) {
        free_slot(sources_of(one).front());
      }
      finish(number);
    }
  }
  for (std::size_t i = 0; i < active.size();) {
    const std::size_t place = active[i];
    if (!posted[place].transfer.done) {
      ++i;
      continue;
    }
    active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    idle.push_back(place);
    bytes_ahead -= posted[place].transfer.bytes;
    const int number = posted[place].node;
    if (const Node& one = node(number); one.head) {
      now->compare(graph.peers[static_cast<std::size_t>(one.peer)], head_in(one.peer));
    }
    finish(number);
  }
}

// Work on memory that this node released is done at once, while its bytes are in the cache.
void Executor::Impl::finish(int number) {
  ready.push_back(number);
  while (!ready.empty()) {
    const Node& done = node(ready.back());
    ready.pop_back();
    --unfinished;
    for (const int after : std::span(graph.dependents)
                               .subspan(static_cast<std::size_t>(done.first_dependent),
                                        static_cast<std::size_t>(done.dependents))) {
      if (--waits[static_cast<std::size_t>(after)] > 0) {
        continue;
      }
      const Node& next = node(after);
      if (next.kind == Kind::combine || next.kind == Kind::scatter) {
        run(next);
        ready.push_back(after);
      }
    }
  }
}

void Executor::Impl::run(const Node& local) {
  if (local.kind == Kind::combine) {
    combine(local);
  } else {
    scatter(local);
  }
  if (local.in_passing) {
    return;
  }
  for (const int source : sources_of(local)) {
    if (source != MessageGraph::kOwn) {
      free_slot(source);
    }
  }
}

void Executor::Impl::combine(const Node& local) {
  std::int64_t at = 0;
  for (const MemoryRange& chunk : chunks(local)) {
    sources.clear();
    for (const int source : sources_of(local)) {
      sources.push_back(source == MessageGraph::kOwn ? memory(chunk)
                                                     : staged_at[static_cast<std::size_t>(source)] + at);
    }
    std::byte* into =
        local.in_passing ? staged_at[static_cast<std::size_t>(sources_of(local).back())] : memory(chunk);
    now->combine(sources, into, chunk.bytes);
    at += chunk.bytes;
  }
}

void Executor::Impl::scatter(const Node& local) {
  const int source = sources_of(local).front();
  const std::byte* from = staged_at[static_cast<std::size_t>(source)];
  for (const MemoryRange& chunk : chunks(local)) {
    std::memcpy(memory(chunk), from, static_cast<std::size_t>(chunk.bytes));
    from += chunk.bytes;
  }
}

Executor::Executor(MessageGraph graph) : impl_(std::make_unique<Impl>(std::move(graph))) {}
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;
Executor::~Executor() = default;

void Executor::execute(const ExecutionArguments& arguments, channels::Channels& channels,
                       StagingMemory& stage, const channels::Channels::Describe& what, Deadline deadline) {
  Impl& self = *impl_;
  self.begin(arguments, channels, stage);
  for (;;) {
    self.start_receives();
    for (std::size_t peer = 0; peer < self.lanes.size(); ++peer) {
      self.start_sends(peer);
    }
    if (self.unfinished == 0) {
      return;
    }
    channels.wait(what, deadline);
    self.harvest();
  }
}

}  // namespace dear::message_programs
