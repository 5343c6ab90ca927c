#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The flight record of a rank: its last events and its first failure, in a file or in memory of the launcher
// that it maps, so that nothing is lost when the rank is killed.
namespace dear::recorder {

enum class Kind : std::uint8_t {
  none,
  begun,   // a collective that this rank has come to: number, bytes, label
  ended,   // it is done
  failed,  // it has failed
  step,    // a training step has ended: number, and its nanoseconds exposed and in all
  files,   // of a checkpoint are read or written; their path
  files_done,
  not_finite,  // a gradient or a parameter: number of the step, the tensor's name
};
// "begun"; "unknown" for a number that is none.
std::string_view name_of(Kind kind);

inline constexpr std::int64_t kEvents = 4096;
inline constexpr std::size_t kTextBytes = 22;

// Beside the values of Collective: an allocation, which all ranks come to in the same order.
inline constexpr std::uint8_t kAllocation = 255, kSharedAllocation = 254;
// "reduce-scatter", "allocation"; "unknown collective" for a number that is none.
std::string_view name_of_collective(std::uint8_t number);

// The label of a barrier by which a rank ends a training whose gradients may be on their way.
inline constexpr std::int64_t kEndsWithinAStep = 1'000'000'007;

// 64 bytes. Numbers count from 0.
struct Event {
  std::int64_t nanoseconds = 0;  // of CLOCK_MONOTONIC
  std::int64_t number = 0;       // of a collective in its group, or of a step
  std::int64_t first = 0;        // bytes of a collective; exposed nanoseconds of a step
  std::int64_t second = 0;       // label of a collective; nanoseconds of a step
  Kind kind = Kind::none;
  std::uint8_t collective = 0;
  std::uint16_t group = 0;              // in the order in which this process made its groups
  std::array<char, kTextBytes> text{};  // padded with zeros; without the beginning where it is longer
  std::uint16_t check = 0;              // that the event is whole
  std::uint32_t sequence = 0;           // its place in the order of events, modulo 2^32
};
static_assert(sizeof(Event) == 64);

// Layout is a record in memory. Fields are written once, when it is opened, but for atomics.
struct Layout {
  static constexpr std::uint64_t kMagic = 0x3172656365526561;  // "aeRecer1"
  std::uint64_t magic = 0;
  std::int32_t rank = 0, ranks = 0, pid = 0;
  std::atomic<std::int32_t> stacks = 0;       // the signal at which Python's stacks are written; 0 for none
  std::int64_t realtime_minus_monotonic = 0;  // nanoseconds, when it was opened
  std::array<char, 64> host{};
  std::atomic<std::uint64_t> events = 0;     // ever begun
  std::atomic<std::int64_t> first_step = 0;  // of the training, where it goes on from a checkpoint
  std::atomic<std::int64_t> steps = 0;       // ended,
  std::atomic<std::int64_t> step_nanoseconds = 0, exposed_nanoseconds = 0;  // and their sums
  std::atomic<std::int32_t> failure_state = 0;  // 1 while the next two are written, 2 afterwards
  std::int64_t failed_at = 0;
  std::array<char, 1024> failure{};
  std::atomic<std::int32_t> failure_is_own = 0;  // no consequence of another rank's
  std::array<Event, kEvents> ring{};
};

// A copy of a record, read while or after its rank runs.
struct Record {
  int rank = 0, ranks = 0, pid = 0, stacks_signal = 0;
  std::string host;
  std::int64_t realtime_minus_monotonic = 0;
  std::uint64_t events_ever = 0;
  std::int64_t first_step = 0, steps = 0, step_nanoseconds = 0, exposed_nanoseconds = 0;
  struct Failure {
    std::int64_t nanoseconds = 0;
    std::string text;
    bool own = false;
  };
  std::optional<Failure> failure;
  std::vector<Event> events;  // in order; those that were overwritten, or written just now, are left out

  // Nanoseconds since 1970 of a moment of CLOCK_MONOTONIC.
  [[nodiscard]] std::int64_t realtime(std::int64_t nanoseconds) const {
    return nanoseconds + realtime_minus_monotonic;
  }
};
std::string text_of(const Event& event);

// The name, with the number of a rank after it, of the memory in which a launcher holds a record, as links in
// /proc/PID/fd show it.
inline constexpr std::string_view kRecordMemory = "dear-record-";

// ConfigError that names the file where it is no record, or was written by another version.
Record read_record(const std::string& path);
// None where nobody has opened it yet.
std::optional<Record> copy_of(const Layout& layout);

}  // namespace dear::recorder
