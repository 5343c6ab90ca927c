#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dear::tune {

// The standard error of a median over that of a mean, of a normal distribution.
inline constexpr double kErrorOfMedian = 1.2533;

struct WindowOptions {
  int settle_iterations = 1;  // after a change, which do not count
  int least_iterations = 3;   // that count
  int most_iterations = 10;
  double precision = 0.01;        // enough is known when the deviation is below this part of the seconds
  double outlier_deviations = 5;  // from the median, of one iteration; those do not count
  double hopeless_times = 1.5;    // the best, in two iterations on end
};

// Makes one measurement of a stream of iteration times, of which some are not what they should be: the first
// after a change, a checkpoint, a stall. No clock: iterations are told.
class Window {
 public:
  enum class State : std::uint8_t {
    open,     // more iterations are wanted
    enough,   // so much is known
    hopeless  // plainly slower than the best: not worth knowing better
  };

  // `best_seconds` is what the best so far takes; nothing when there is none to compare with.
  explicit Window(const WindowOptions& options = {}, std::optional<double> best_seconds = {});

  // The next iteration; the state after it. Seconds that are not finite and above 0 are passed over.
  State add(double seconds);
  [[nodiscard]] State state() const { return state_; }

  // The median of the iterations that count: without outliers, and without those in which a change settles
  // unless there is nothing else. Of a hopeless candidate the least of all. 0 when nothing was told.
  [[nodiscard]] double seconds() const;
  // Standard error of that, and standard deviation of one iteration, by the median of deviations from the
  // median (MAD); 0 when fewer than two count.
  [[nodiscard]] double deviation_seconds() const;
  [[nodiscard]] double noise_seconds() const;
  [[nodiscard]] double least_seconds() const;  // of all that were told; 0 when there was none
  [[nodiscard]] int iterations() const { return iterations_; }  // all that were told

 private:
  [[nodiscard]] std::vector<double> counted() const;

  WindowOptions options_;
  std::optional<double> best_seconds_;
  State state_ = State::open;
  int iterations_ = 0;
  int slow_on_end_ = 0;
  std::vector<double> settling_;
  std::vector<double> settled_;
};

}  // namespace dear::tune
