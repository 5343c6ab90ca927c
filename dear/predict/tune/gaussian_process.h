#pragma once

#include <cstddef>
#include <memory>
#include <vector>

// Gaussian process regression (Rasmussen and Williams 2006, ISBN 026218253X): beliefs about an unknown
// function, everywhere, from values with noise at some points.
namespace dear::tune {

// A point at which the function is observed or asked for.
struct Point {
  std::vector<double> position;
  double expected = 0;  // the value that was expected there before any observation
};

// The covariance of the values at two points. With r their distance in units of `lengths`, it is
//   signal^2 (1 + sqrt(5) r + 5/3 r^2) exp(-sqrt(5) r)         Matern 5/2, one length for each coordinate
//   + offset^2                                                 all expected values may be off by one amount
//   + slope^2 expected expected'                               differences of expected values may be off
// Measured values have independent noise besides. All are standard deviations, in units of the values.
struct Kernel {
  std::vector<double> lengths;  // above 0
  double signal = 1;
  double noise = 0;
  double offset = 0;
  double slope = 0;
};

double matern_5_2(double r);

struct Belief {
  double mean = 0;
  double deviation = 0;  // standard deviation of the function, without the noise of a measurement
};

// A Gaussian process with its observations. Any threads may ask it at once.
class GaussianProcess {
 public:
  // Takes as many values as points, possibly none, and as many lengths as coordinates. Factors the covariance
  // by Cholesky, and adds to its diagonal what rounding demands. ConfigError for values that are not finite.
  GaussianProcess(std::vector<Point> points, const std::vector<double>& values, Kernel kernel);

  [[nodiscard]] Belief at(const Point& point) const;
  // Returns the logarithm of the probability density of the values under this kernel.
  [[nodiscard]] double log_likelihood() const;
  // Returns the derivatives of log_likelihood() by the logarithms of the lengths, the signal and the noise,
  // in this order.
  [[nodiscard]] std::vector<double> gradient() const;

 private:
  struct Factored;  // Eigen's matrices
  [[nodiscard]] double covariance(const Point& one, const Point& other) const;

  std::vector<Point> points_;
  Kernel kernel_;
  std::shared_ptr<const Factored> factored_;
};

// The log-normal priors of a kernel's numbers: the centre of each is given here, and a factor of e more or
// less is one standard deviation. The few measurements of a tuner alone cannot tell a short length from
// noise.
struct FitOptions {
  double length = 0.3;
  double signal = 0.2;
  double noise = 0.02;
  double offset = 1;  // not fitted
  double slope = 0;   // not fitted
  int steps = 60;     // of the ascent from each of several starts, at most
};

// Returns the kernel of the highest likelihood times prior that several ascents along the gradient find
// (resilient propagation: Blum and Riedmiller 2013, ESANN). The result depends on the arguments alone.
// Lengths stay between a twentieth and twenty times their centre, signal and noise between a hundredth and a
// hundred times.
Kernel fit_kernel(const std::vector<Point>& points, const std::vector<double>& values,
                  const FitOptions& options = {});

}  // namespace dear::tune
