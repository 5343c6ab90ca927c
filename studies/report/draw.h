#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace dear::studies {

// Random cases of a study: equal on every machine, unlike the distributions of the standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int from_to(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  double part() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // from 0 to below 1
  double below(double most) { return most * part(); }
  double power_of_10(double least, double most) { return std::pow(10, least + below(most - least)); }

 private:
  std::mt19937_64 random_;
};

}  // namespace dear::studies
