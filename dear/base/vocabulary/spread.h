#pragma once

#include <vector>

namespace dear {

// A Spread holds quantiles of measured values, interpolated linearly between neighbours; all are 0 without
// values.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};
Spread spread_of(std::vector<double> values);

struct Quartiles {
  double first = 0;
  double median = 0;
  double third = 0;
};
Quartiles quartiles_of(std::vector<double> values);

}  // namespace dear
