#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace dear::tune {

// Random numbers that are the same with every library: the standard fixes what the generator gives, not what
// its distributions make of it.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : generator_(seed) {}

  double unit() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }  // in [0, 1)
  std::uint64_t below(std::uint64_t bound) { return generator_() % bound; }    // bound above 0
  // Of the standard normal distribution (Box and Muller 1958, doi:10.1214/aoms/1177706645).
  double normal() {
    constexpr double kTwoPi = 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(kTwoPi * unit());
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace dear::tune
