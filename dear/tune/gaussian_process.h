#pragma once

#include <cstddef>
#include <memory>
#include <vector>

// Gaussian process regression (Rasmussen and Williams 2006, ISBN 026218253X): an unknown function, seen with
// noise in some points, and what may be believed of it everywhere.
namespace dear::tune {

// Where the function is looked at, and what it was expected to be there.
struct Point {
  std::vector<double> position;
  double expected = 0;
};

// How values in two points go together. With r the distance in units of `lengths`, their covariance is
//   signal^2 (1 + sqrt(5) r + 5/3 r^2) exp(-sqrt(5) r)         Matern 5/2, one length for each coordinate
//   + offset^2                                                 expected values may all be too low by as much
//   + slope^2 expected expected'                               and may exaggerate, or not enough
// and what is measured has independent noise besides. All are standard deviations, in units of the values.
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
  double deviation = 0;  // of the function itself, not of what would be measured
};

// Any thread may ask once it is made.
class GaussianProcess {
 public:
  // As many values as points, or none of both; as many lengths as coordinates. Factors their covariance
  // by Cholesky, adding to the diagonal what rounding demands. ConfigError for values that are not finite.
  GaussianProcess(std::vector<Point> points, const std::vector<double>& values, Kernel kernel);

  [[nodiscard]] Belief at(const Point& point) const;
  // Logarithm of the probability density of the values under this kernel.
  [[nodiscard]] double log_likelihood() const;
  // Its derivatives by the logarithms of the lengths, the signal and the noise, in this order.
  [[nodiscard]] std::vector<double> gradient() const;

 private:
  struct Factored;  // Eigen's matrices
  [[nodiscard]] double covariance(const Point& one, const Point& other) const;

  std::vector<Point> points_;
  Kernel kernel_;
  std::shared_ptr<const Factored> factored_;
};

// What a kernel is like before anything was measured. The few measurements of a tuner cannot tell a short
// length from noise, so each number has a log-normal prior: its centre is the one given, and a factor of e
// more or less is one standard deviation.
struct FitOptions {
  double length = 0.3;
  double signal = 0.2;
  double noise = 0.02;
  double offset = 1;  // not fitted
  double slope = 0;   // not fitted
  int steps = 60;     // at most, from each of several starts
};

// The kernel of the highest likelihood times prior, by the best of several ascents along the gradient
// (resilient propagation: Blum and Riedmiller 2013, ESANN). The same for the same input. Lengths stay between
// a twentieth and twenty times what is given; signal and noise between a hundredth and a hundred times.
Kernel fit_kernel(const std::vector<Point>& points, const std::vector<double>& values,
                  const FitOptions& options = {});

}  // namespace dear::tune
