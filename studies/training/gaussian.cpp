#include "studies/training/gaussian.h"

#include <cmath>

namespace dear::studies::training {

float Gaussian::operator()() {
  for (;;) {
    const float x = draw_.uniform(), y = draw_.uniform();
    const float square = x * x + y * y;
    if (square > 0 && square < 1) return x * std::sqrt(-2 * std::log(square) / square);
  }
}

}  // namespace dear::studies::training
