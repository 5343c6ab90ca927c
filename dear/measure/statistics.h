#pragma once

#include <vector>

namespace dear::measure {

struct Quantiles {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

// Between two measured values by linear interpolation. All 0 for no values.
Quantiles quantiles_of(std::vector<double> values);

}  // namespace dear::measure
