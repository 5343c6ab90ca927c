#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/init.h"

namespace dear {

struct PutInGrid {
  std::unique_ptr<Backend> backend;
  std::string note;  // a sentence on the grid: its dimensions and how they are used
};

// A grid of the ranks of `whole`, the backend of this name. ConfigError for sizes whose product is another
// number of ranks, settings that cannot be, and interfaces of another backend than gloo; MismatchError naming
// the rank whose settings differ from rank 0's. A collective.
PutInGrid put_in_grid(std::unique_ptr<Backend> whole, std::string_view name, const GridSettings& settings,
                      const Placement& placement);

// "2x4", the sizes of dimensions from the innermost out, or the path of a cluster file. ConfigError.
GridSettings parse_grid(std::string_view text);

// ConfigError for settings that are wrong on any ranks: no sizes, one below 1, an algorithm or a number of
// chunks that there is not, a cluster together with sizes, a modelled network without one, interfaces for
// another number of dimensions; and for a grid that has not so many ranks.
void validate(const GridSettings& settings, int ranks);

}  // namespace dear
