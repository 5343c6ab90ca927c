#pragma once

#include <cstdint>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::training {

// Normally distributed numbers, by Marsaglia's polar method (doi:10.1137/1006063): the same for the same seed
// and key wherever logarithms round alike.
class Gaussian {
 public:
  Gaussian(std::uint64_t seed, std::uint64_t key) : draw_(seed, 0, key) {}
  float operator()();

 private:
  codec::Draw draw_;
};

}  // namespace dear::studies::training
