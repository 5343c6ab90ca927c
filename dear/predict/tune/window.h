#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dear::tune {

// The ratio of the standard error of a median to that of a mean, for a normal distribution.
inline constexpr double kErrorOfMedian = 1.2533;

struct WindowOptions {
  int warm_up_iterations = 1;  // the first iterations after a change, which do not count
  int least_iterations = 3;    // the fewest iterations that count
  int most_iterations = 10;
  double precision = 0.01;        // the window is enough when its deviation is below this part of the seconds
  double outlier_deviations = 5;  // an iteration so many deviations from the median does not count
  double hopeless_times = 1.5;    // hopeless: two iterations in a row take so many times the best
};

// A window makes one measurement from the times of consecutive iterations. Some of them are not typical: the
// first after a change, a checkpoint, a stall. The window has no clock: the caller tells the times.
class Window {
 public:
  enum class State : std::uint8_t {
    open,     // the window wants more iterations
    enough,   // the measurement is as precise as the options ask, or has its most iterations
    hopeless  // the candidate is plainly slower than the best
  };

  // `best_seconds` is the time of the best candidate so far, if any.
  explicit Window(const WindowOptions& options = {}, std::optional<double> best_seconds = {});

  // Takes the time of the next iteration and returns the state after it. Seconds that are not finite and
  // above 0 are ignored.
  State add(double seconds);
  [[nodiscard]] State state() const { return state_; }

  // Returns the median of the iterations that count. Outliers do not count, nor do those of the warm-up
  // unless there are no others. For a hopeless candidate it returns the least time of all; without iterations
  // 0.
  [[nodiscard]] double seconds() const;
  // Return the standard error of seconds() and the standard deviation of one iteration, both from the median
  // of deviations from the median (MAD); 0 when fewer than two iterations count.
  [[nodiscard]] double deviation_seconds() const;
  [[nodiscard]] double noise_seconds() const;
  [[nodiscard]] double least_seconds() const;                   // of all iterations; 0 without any
  [[nodiscard]] int iterations() const { return iterations_; }  // all, whether they count or not

 private:
  [[nodiscard]] std::vector<double> counted() const;

  WindowOptions options_;
  std::optional<double> best_seconds_;
  State state_ = State::open;
  int iterations_ = 0;
  int slow_on_end_ = 0;
  std::vector<double> warm_up_;
  std::vector<double> measured_;
};

}  // namespace dear::tune
