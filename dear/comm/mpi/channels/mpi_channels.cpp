#include "dear/comm/mpi/channels/mpi_channels.h"

#include <algorithm>
#include <bit>
#include <map>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/host_key.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels {
namespace {

// A message of MPI counts its bytes in an int.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
constexpr Tag kHello = kMostTag + 1;
// What a rank sent before it left may still be on its way when the word of its leaving is here.
constexpr auto kLastWords = std::chrono::milliseconds(200);
constexpr std::uint32_t kLooksBetweenNotices = 256;
constexpr std::uint32_t kSleepsBetweenNotices = 8;
constexpr std::uint32_t kSleepsBetweenTroubles = 64;  // a multiple of it
// Some microseconds of looks in one call, for what is on its way already.
constexpr int kLooksAtOnce = 256;
// Open MPI lets others run by itself at each look where processors are shared, and twice is slower than once.
constexpr int kLooksBetweenYields = 8;

std::atomic<Mpi*> in_use = nullptr;

// What ranks say of themselves when they meet.
struct Hello {
  std::uint64_t host = 0;
  std::int64_t pid = 0;
};

}  // namespace

MpiChannels::MpiChannels(const MpiWorld& world)
    : world_(world),
      hosts_(static_cast<std::size_t>(world.size)),
      left_(static_cast<std::size_t>(world.size)) {
  in_use = this;
}

Mpi* mpi_in_use() { return in_use; }

bool on_one_host(const Mpi& mpi) {
  return std::all_of(mpi.hosts().begin(), mpi.hosts().end(), [](int host) { return host == 0; });
}

MpiChannels::~MpiChannels() {
  in_use = nullptr;
  const std::lock_guard lock(turn_);
  if (!error_.has_come() && !aborted_) {
    tell_peers(Notice::Kind::left, "");
  }
  int count = 0;
  void* const* const cookies = world_.binding->outstanding(&count);
  const auto notices = std::count(cookies, cookies + count, nullptr);
  const bool lost = error_.has_come() || aborted_ || notices < count;
  if (notices > 0) {
    // A peer is slow to take it, and MPI will read it until then.
    static_cast<void>(outgoing_.release());
  }
  if (lost) {
    world_.binding->cancel_receives();
  }
  give_back_mpi(lost ? MpiState::lost : MpiState::whole);
}

// ---- The first exchange.

void MpiChannels::meet(Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<Hello> hellos(ranks);
  Hello& mine = hellos[static_cast<std::size_t>(rank())];
  mine = {.host = Digest().add(os::host_key()).value(), .pid = getpid()};
  std::vector<Transfer> transfers;
  transfers.reserve(2 * ranks);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      auto* const theirs = reinterpret_cast<std::byte*>(&hellos[static_cast<std::size_t>(peer)]);
      transfers.push_back({Transfer::Direction::receive, peer, kHello, theirs, sizeof(Hello)});
      transfers.push_back(
          {Transfer::Direction::send, peer, kHello, reinterpret_cast<std::byte*>(&mine), sizeof(Hello)});
    }
  }
  for (Transfer& transfer : transfers) {
    start(transfer);
  }
  while (!std::all_of(transfers.begin(), transfers.end(), [](const Transfer& one) { return one.done; })) {
    wait([] { return "wait for all ranks to meet"; }, deadline);
  }

  std::map<std::uint64_t, int> numbers;
  std::vector<os::FileDescriptor> processes(ranks);
  int neighbours = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    hosts_[i] = numbers.emplace(hellos[i].host, static_cast<int>(numbers.size())).first->second;
  }
  for (std::size_t i = 0; i < ranks; ++i) {
    if (hellos[i].host == mine.host) {
      ++neighbours;
      processes[i] = os::watch_process(static_cast<pid_t>(hellos[i].pid));
    }
  }
  peers_ = os::Peers(std::move(processes));
  processors_ = get_nprocs() >= neighbours ? Backoff::Processors::own : Backoff::Processors::shared;
}

std::string MpiChannels::description() const {
  char text[128] = "";
  world_.binding->describe_version(text, sizeof text);
  return text;
}

// ---- Transfers.

// Where a rank has died, that says more than what MPI made of it.
void MpiChannels::check(int error, const char* doing) const {
  if (error != 0) {
    for (int peer = 0; peer < size(); ++peer)
      if (peers_.ended(peer))
        throw TransportError(
            peers_.is_gone(peer, left_[static_cast<std::size_t>(peer)] != SteadyTime{}, doing));
    char text[512] = "";
    world_.binding->describe_error(error, text, sizeof text);
    throw TransportError(fmt::format("rank {}: {} refused to {}: {}", rank(), description(), doing, text));
  }
}

void MpiChannels::start(Transfer& transfer) {
  guarded([&] {
    transfer.done = false;
    if (transfer.bytes <= kMostBytes) {
      start_chunk(transfer, 0, transfer.bytes);
      return;
    }
    chunks_[&transfer] = {.left = static_cast<int>((transfer.bytes + kMostBytes - 1) / kMostBytes)};
    for (std::int64_t from = 0; from < transfer.bytes; from += kMostBytes) {
      start_chunk(transfer, from, std::min(kMostBytes, transfer.bytes - from));
    }
  });
}

void MpiChannels::start_chunk(Transfer& transfer, std::int64_t from, std::int64_t bytes) {
  const MpiBinding& mpi = *world_.binding;
  std::byte* const data = transfer.data + from;
  const int length = static_cast<int>(bytes);
  const int tag = static_cast<int>(transfer.tag & ~kOrShorter);
  if (transfer.direction == Transfer::Direction::send) {
    check(mpi.send(data, length, transfer.peer, tag, MpiLane::data, &transfer), "send a message");
  } else {
    check(mpi.receive(data, length, transfer.peer, tag, MpiLane::data, &transfer), "expect a message");
  }
}

bool MpiChannels::progress() {
  return guarded([&] {
    if (++looks_ % kLooksBetweenNotices == 0) {
      take_notices();
    }
    return poll();
  });
}

bool MpiChannels::poll() {
  const MpiCompletion* completions = nullptr;
  int count = 0;
  check(world_.binding->poll(&completions, &count), "look after messages");
  bool any = false;
  for (int i = 0; i < count; ++i) {
    any = finish(completions[i]) || any;
  }
  return any;
}

bool MpiChannels::finish(const MpiCompletion& completion) {
  if (completion.cookie == nullptr) {  // a notice that went out
    return false;
  }
  auto& transfer = *static_cast<Transfer*>(completion.cookie);
  if (completion.truncated != 0) {
    throw_wrong_length(transfer, completion);
  }
  check(completion.error, "carry a message");
  std::int64_t bytes = completion.bytes;
  if (transfer.bytes > kMostBytes) {
    Chunks& chunks = chunks_[&transfer];
    chunks.bytes += bytes;
    if (--chunks.left > 0) {
      return false;
    }
    bytes = chunks.bytes;
    chunks_.erase(&transfer);
  }
  if ((transfer.tag & kOrShorter) != 0) {
    transfer.bytes = bytes;
  } else if (transfer.direction == Transfer::Direction::receive && bytes != transfer.bytes) {
    throw_wrong_length(transfer, completion);
  }
  transfer.done = true;
  return true;
}

// How long a message was that did not fit is known to some implementations only.
void MpiChannels::throw_wrong_length(const Transfer& transfer, const MpiCompletion& completion) const {
  const std::string length = completion.truncated == 0 || completion.bytes > transfer.bytes
                                 ? fmt::format("{}", completion.bytes)
                                 : fmt::format("more than {}", transfer.bytes);
  throw TransportError(
      fmt::format("rank {} sent {} bytes where rank {} expects {} (tag {}): every rank must issue the same "
                  "collectives",
                  transfer.peer, length, rank(), transfer.bytes, transfer.tag & ~kOrShorter));
}

void MpiChannels::exchange(std::span<const EagerMessage> messages, Tag tag, const Describe& what,
                           Deadline deadline) {
  guarded([&] {
    exchanged_.resize(2 * messages.size());
    binding_messages_.resize(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const EagerMessage& message = messages[i];
      binding_messages_[i] = {.out = message.out,
                              .in = message.in,
                              .bytes = static_cast<std::int32_t>(message.bytes),
                              .room = static_cast<std::int32_t>(message.room),
                              .peer = message.peer,
                              .sending = &exchanged_[2 * i],
                              .receiving = &exchanged_[2 * i + 1]};
    }
    const int yield_every = processors_ == Backoff::Processors::own ? 0 : kLooksBetweenYields;
    int through = 0;
    const MpiCompletion* completions = nullptr;
    int completed = 0;
    check(world_.binding->exchange(binding_messages_.data(), static_cast<int>(binding_messages_.size()),
                                   static_cast<int>(tag), kLooksAtOnce, yield_every, &through, &completions,
                                   &completed),
          "exchange messages");
    if (through != 0) {
      return;
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const EagerMessage& one = messages[i];
      exchanged_[2 * i] = {Transfer::Direction::send, one.peer, tag, const_cast<std::byte*>(one.out),
                           one.bytes};
      exchanged_[2 * i + 1] = {Transfer::Direction::receive, one.peer, tag | kOrShorter, one.in, one.room};
    }
    for (int i = 0; i < completed; ++i) {
      finish(completions[i]);
    }
    const auto all_done = [&] {
      poll();
      return std::all_of(exchanged_.begin(), exchanged_.end(), [](const Transfer& one) { return one.done; });
    };
    look_until(all_done, what, deadline, deadline);
  });
}

// ---- Waiting.

void MpiChannels::wait_until(const Describe& what, Deadline deadline, Deadline until) {
  guarded([&] {
    if (!poll()) {
      look_until([this] { return poll(); }, what, deadline, until, &usual_wait());
    }
  });
}

// That for as many bytes as the next message from a peer has: the shortest on its way, by powers of two.
UsualWait& MpiChannels::usual_wait() {
  int count = 0;
  void* const* const cookies = world_.binding->outstanding(&count);
  std::int64_t shortest = kMostBytes;
  for (int i = 0; i < count; ++i) {
    if (cookies[i] != nullptr) {
      shortest = std::min(shortest, static_cast<const Transfer*>(cookies[i])->bytes);
    }
  }
  return usual_waits_[std::bit_width(static_cast<std::uint64_t>(shortest))];
}

void MpiChannels::look_until(const std::function<bool()>& look, const Describe& what, Deadline deadline,
                             Deadline until, UsualWait* usual) {
  if (look()) {
    return;
  }
  Backoff backoff(processors_, usual == nullptr ? std::chrono::nanoseconds{} : usual->time());
  SteadyTime since{};
  for (;;) {
    backoff.pause(earlier(deadline, until));
    if (look()) {
      if (usual != nullptr) {
        usual->learn(backoff.waited());
      }
      return;
    }
    if (aborted_.load(std::memory_order_relaxed)) {
      look_for_abort();
    }
    if (until.at() < deadline.at() && until.expired()) {
      return;
    }
    if (!backoff.slept()) {
      continue;
    }
    if (since == SteadyTime{}) {
      since = SteadyClock::now();
    }
    if (++sleeps_ % kSleepsBetweenNotices == 0) {
      take_notices();
      look_for_trouble(what, since);
    }
    if (deadline.expired() && !look()) {
      fail_late(what, since);
    }
  }
}

// Ranks that owe a message; where none does, those that have not taken one.
std::vector<int> MpiChannels::awaited() const {
  int count = 0;
  void* const* const cookies = world_.binding->outstanding(&count);
  std::vector<int> senders, receivers;
  for (int i = 0; i < count; ++i) {
    if (cookies[i] != nullptr) {
      const auto& transfer = *static_cast<const Transfer*>(cookies[i]);
      (transfer.direction == Transfer::Direction::receive ? senders : receivers).push_back(transfer.peer);
    }
  }
  std::vector<int>& ranks = senders.empty() ? receivers : senders;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// A rank that sent what it owed may end at once, so MPI is asked once more before it is blamed.
void MpiChannels::look_for_trouble(const Describe& what, SteadyTime since) {
  constexpr auto kBeforeTheFirst = std::chrono::milliseconds(5);
  if (sleeps_ % kSleepsBetweenTroubles != 0 || SteadyClock::now() - since < kBeforeTheFirst) {
    return;
  }
  for (const int peer : awaited()) {
    const SteadyTime left = left_[static_cast<std::size_t>(peer)];
    const bool gone = left != SteadyTime{} && SteadyClock::now() - left > kLastWords;
    if (gone || peers_.ended(peer)) {
      if (poll()) {
        return;
      }
      throw TransportError(peers_.is_gone(peer, gone, what()));
    }
  }
}

void MpiChannels::fail_late(const Describe& what, SteadyTime since) {
  throw TimeoutError(peers_.are_late(awaited(), now_seconds() - seconds_of(since), what()));
}

}  // namespace dear::channels
