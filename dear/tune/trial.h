#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Plain values that tell what tuning did.
namespace dear::tune {

// The time that a candidate was seen to take.
struct Observation {
  std::size_t candidate = 0;
  double seconds = 0;
};

// The time that a candidate is believed to take.
struct Expectation {
  double seconds = 0;
  double deviation = 0;  // of the logarithm of the seconds, so nearly a part of them

  [[nodiscard]] double low_seconds() const;  // a standard deviation less, and more
  [[nodiscard]] double high_seconds() const;
};

// What a session does.
enum class State : std::uint8_t {
  baseline,   // measures what it started with
  trials,     // measures what the tuner suggests
  comparing,  // the winner is near what it started with: both are measured again, side by side
  settled,    // the winner runs, and is watched
  drifted     // it got slower or faster by itself: measures what it now takes, then tries again, see expect()
};
std::string_view name_of(State state);

// How a trial ended.
enum class TrialResult : std::uint8_t {
  measured,  // as well as asked for
  hopeless,  // given up early: plainly slower than the best
  budget,    // cut short: trials have cost what they may
  compared   // measured again, against another
};
std::string_view name_of(TrialResult result);

// One stay at one candidate, in order to measure it.
struct Trial {
  std::size_t candidate = 0;
  double seconds = 0;             // of an iteration
  double deviation_seconds = 0;   // of that, see Window
  int iterations = 0;             // spent
  std::int64_t at_iteration = 0;  // number of the first of them
  State state = State::baseline;  // in which it was made
  TrialResult result = TrialResult::measured;
};

}  // namespace dear::tune
