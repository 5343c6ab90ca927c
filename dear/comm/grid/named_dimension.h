#pragma once

#include <memory>
#include <vector>

#include "dear/comm/group/backend.h"

namespace dear::grid {

// A line that was not made by splitting the whole, whose messages number its ranks from 0 on: its errors say
// along which dimension and which ranks of the whole those are. `ranks`: the members, by coordinate.
std::unique_ptr<Backend> make_named_dimension(std::unique_ptr<Backend> line, int dimension,
                                              std::vector<int> ranks);

}  // namespace dear::grid
