#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// How long the parts of K-FAC take, as formulas that are fitted to measurements.
namespace dear::methods::kfac {

// Seconds of a collective on so many elements: start + elements * each.
struct LinearCost {
  double start_seconds = 0;
  double seconds_per_element = 0;
  [[nodiscard]] double seconds(std::int64_t elements) const {
    return start_seconds + seconds_per_element * static_cast<double>(elements);
  }
};

// Seconds to invert a symmetric positive definite matrix, by its dimension.
class InverseCost {
 public:
  // start + dimension³ * each: a Cholesky factorisation on a processor.
  static InverseCost cubic(double start_seconds, double seconds_per_cube);
  // start * exp(growth * dimension): the form of Shi et al., fitted to one GPU.
  static InverseCost exponential(double start_seconds, double growth);
  // Between measured points by straight lines, beyond the largest with the cube of the dimension, below the
  // smallest as the smallest. ConfigError unless dimensions ascend and times are positive.
  static InverseCost measured(std::vector<std::pair<std::int64_t, double>> points);

  [[nodiscard]] double seconds(std::int64_t dimension) const;
  [[nodiscard]] InverseCost times(double factor) const;  // every time is so many times as long
  [[nodiscard]] std::string text() const;                // "2.1e-05 s + 3.4e-11 s * d^3"

 private:
  enum class Form : std::uint8_t { cubic, exponential, measured };
  InverseCost(Form form, double start, double growth) : form_(form), start_(start), growth_(growth) {}

  Form form_;
  double start_, growth_;
  std::vector<std::pair<std::int64_t, double>> points_;
};

// Fits by least squares of relative errors, both constants at least 0: times span several orders of
// magnitude. ConfigError for fewer than two different dimensions (or sizes), or a time that is not positive
// and finite.
InverseCost fit_cubic(const std::vector<std::pair<std::int64_t, double>>& dimension_and_seconds);
LinearCost fit_linear(const std::vector<std::pair<std::int64_t, double>>& elements_and_seconds);

}  // namespace dear::methods::kfac
