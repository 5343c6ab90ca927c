#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace dear::tune {

// Random numbers that are the same with every standard library. The standard fixes the numbers of a
// generator, but not those of a distribution.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : generator_(seed) {}

  double unit() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }  // in [0, 1)
  std::uint64_t below(std::uint64_t bound) { return generator_() % bound; }    // bound above 0
  // Returns a number of the standard normal distribution (Box and Muller 1958, doi:10.1214/aoms/1177706645).
  double normal() {
    constexpr double kTwoPi = 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(kTwoPi * unit());
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace dear::tune
