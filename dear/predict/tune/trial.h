#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Values that say what tuning did.
namespace dear::tune {

// A measured time of a candidate.
struct Observation {
  std::size_t candidate = 0;
  double seconds = 0;
};

// The time that a tuner expects of a candidate.
struct Expectation {
  double seconds = 0;
  double deviation = 0;  // standard deviation of the logarithm of the seconds

  [[nodiscard]] double low_seconds() const;   // one standard deviation below `seconds`
  [[nodiscard]] double high_seconds() const;  // one standard deviation above `seconds`
};

// Says what a session does.
enum class State : std::uint8_t {
  baseline,   // measures the candidate that it started with
  trials,     // measures candidates that the tuner suggests
  comparing,  // measures the winner and the start again, side by side, because they are nearly alike
  converged,  // runs the winner, and watches for drift
  drifted     // measures the winner after a drift, before new trials; see Session::expect()
};
std::string_view name_of(State state);

// How a trial ended.
enum class TrialResult : std::uint8_t {
  measured,  // as precisely as the options ask
  hopeless,  // early, because the candidate is plainly slower than the best
  budget,    // early, because trials have cost their budget
  compared   // after a measurement beside another candidate
};
std::string_view name_of(TrialResult result);

// Consecutive iterations of one candidate that measured it.
struct Trial {
  std::size_t candidate = 0;
  double seconds = 0;             // of an iteration
  double deviation_seconds = 0;   // standard error of `seconds`, see Window
  int iterations = 0;             // that the trial took
  std::int64_t at_iteration = 0;  // number of its first iteration
  State state = State::baseline;  // of the session during the trial
  TrialResult result = TrialResult::measured;
};

}  // namespace dear::tune
