#pragma once

#include <functional>
#include <vector>

namespace dear::studies {

// Where `loss` is least near `start`, without derivatives (Nelder and Mead 1965,
// doi:10.1093/comjnl/7.4.308): the simplex begins as `start` and one point `step` beyond it in each
// direction, and moves `moves` times. Infinity keeps it away. The same numbers every time. `start` has one or
// more.
std::vector<double> downhill_simplex(const std::function<double(const std::vector<double>&)>& loss,
                                     const std::vector<double>& start, double step, int moves);

}  // namespace dear::studies
