#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/base/os/peers.h"
#include "dear/base/os/segment.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/heading.h"

namespace dear::backends {

using os::Peers;
using os::Segment;

// A RequestSummary describes the collective that a rank enters and where its data lies, and all ranks compare
// theirs. Fields without a meaning for the collective are 0.
struct RequestSummary {
  comm::Heading heading;
  std::uint64_t buffer = 0;  // of the view; buffers are numbered in the order of their allocation
  std::int64_t offset_bytes = 0;
  std::uint64_t output_buffer = 0;
  std::int64_t output_offset_bytes = 0;
  // Times on the steady clock, which are not compared.
  std::int64_t arrival_nanoseconds = 0;
  std::int64_t asked_nanoseconds = 0;
};

// A RequestSummary in two words; `what` is 0 where they have no room for it. See packed().
struct PackedSummary {
  std::uint64_t what = 0;
  std::uint64_t where = 0;
  friend bool operator==(const PackedSummary&, const PackedSummary&) = default;
};

// The segment in which the ranks of one host meet: a barrier, a board of summaries with room for small
// data, and the one failure that ends the group. Each rank has an object of its own on the shared memory;
// post_failure() may be called from any thread, the rest by one at a time.
class Control {
 public:
  static constexpr int kMaxRanks = 128;
  static constexpr std::int64_t kNoteBytes = 8192;
  static constexpr std::int64_t kBriefBytes = 104;
  enum class FailureKind : std::uint32_t { transport, timeout };

  static std::int64_t bytes_for(int ranks);

  // `meanwhile`: see ShmOptions.
  Control(std::shared_ptr<Segment> segment, Peers peers, int rank, int ranks,
          std::function<void()> meanwhile = {});
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control() { leave(); }  // peers that still wait for this rank, or will, are told that it left

  // Says in words, for a message, what the ranks do: "wait in collective 3". Called only on failure.
  using Describe = std::function<std::string()>;

  // Waits for all ranks to call it as often as this one. What they wrote before is visible after. Throws the
  // group's failure; a TransportError when a rank that is waited for died or left, a TimeoutError at the
  // deadline: these become the group's failure.
  void barrier(const Describe& what, Deadline deadline, Waiting waiting = Waiting::asleep);

  // The summary of a rank for the parity of a sequence. Its rank writes it before a barrier, and all read it
  // between this barrier and the next one; a rank is never more than one sequence ahead of a reader.
  [[nodiscard]] RequestSummary& summary(int rank, std::uint64_t sequence) const;
  // kNoteBytes beside the summary, under the same rule; aligned to 16 bytes.
  [[nodiscard]] std::byte* note(int rank, std::uint64_t sequence) const;

  // A Brief lies in the lines that the others read to see that a rank has come, so reading it takes them no
  // time. Its rank writes it before a barrier, and all read it between this barrier and the next one.
  struct Brief {
    PackedSummary packed_summary;
    alignas(8) std::byte data[kBriefBytes];
  };
  [[nodiscard]] Brief& brief_for_next() const;         // of this rank, for the next barrier
  [[nodiscard]] Brief& brief_of_last(int rank) const;  // for the last one

  // Makes `message` the failure of the group, unless there is one already, and wakes all. The peers throw it
  // as it stands.
  void post_failure(FailureKind kind, const std::string& message) noexcept;
  // Posts and throws the group's failure.
  [[noreturn]] void fail(FailureKind kind, const std::string& message);

  // For messages beside the barrier (shm_channels.h), on any thread. ring() wakes who is in sleep_unless(),
  // which returns what `done` says, now or after it was woken or `pause` has passed: who writes and then
  // rings is seen by `done`, or wakes the sleeper.
  void throw_if_failed() const;
  void ring();
  bool sleep_unless(const std::function<bool()>& done, std::chrono::nanoseconds pause);
  [[nodiscard]] std::vector<int> gone_of(const std::vector<int>& ranks) const;  // who left or died
  [[noreturn]] void fail_gone(int rank, const Describe& what);
  [[noreturn]] void fail_late_beside(const std::vector<int>& ranks, const Describe& what, SteadyTime since);

 private:
  void leave() noexcept;
  struct Board;
  struct RankSlot;
  struct Arrival;
  [[nodiscard]] RankSlot& slot(int rank) const;
  [[nodiscard]] Arrival& arrival(int rank) const;  // at the last barrier that this rank entered
  [[nodiscard]] bool all_here() const;
  [[nodiscard]] bool spin() const;
  [[nodiscard]] bool yield() const;
  void sleep_until_all_here(const Describe& what, Deadline deadline);
  [[nodiscard]] std::vector<int> missing() const;
  void fail_if_gone(const std::vector<int>& absent, const Describe& what);
  void fail_late(const std::vector<int>& absent, const Describe& what, SteadyTime since);
  [[noreturn]] void throw_failure() const;
  [[noreturn]] static void throw_as(FailureKind kind, const std::string& message);

  std::shared_ptr<Segment> segment_;
  Peers peers_;
  int rank_;
  int ranks_;
  std::function<void()> meanwhile_;
  Board* board_;
  RankSlot* slots_;
  bool may_spin_;
  pid_t process_;
  std::uint64_t phase_ = 0;  // barriers that this rank entered
};

}  // namespace dear::backends
