#include "dear/comm/backends/init.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/in_grid.h"
#include "dear/comm/shaped/shaped.h"

namespace dear {

Group init(const InitOptions& options) {
  const Placement placement{.environment = read_launch_environment(),
                            .deadline = Deadline::after(options.timeout),
                            .reproducible = options.reproducible};
  if (options.grid && options.network) {
    throw ConfigError("a grid has networks of its own: give a grid or a network, not both");
  }
  BackendChoice choice = choose_backend(options.backend, placement);
  if (options.grid) {
    PutInGrid in_grid = put_in_grid(std::move(choice.backend), choice.name, *options.grid, placement);
    choice.backend = std::move(in_grid.backend);
    choice.reason += "; " + in_grid.note;
  }
  if (placement.environment.rank == 0 && placement.environment.size > 1) {
    tell(options.say, fmt::format("backend {}: {}", choice.name, choice.reason));
  }
  if (options.network) {
    choice.backend = backends::make_shaped(std::move(choice.backend), *options.network);
  }
  return Group(std::move(choice.backend), {.timeout = options.timeout});
}

Group group_in_grid(std::unique_ptr<Backend> backend, const GridSettings& settings,
                    const InitOptions& options) {
  const std::string name = backend->description();
  PutInGrid in_grid = put_in_grid(std::move(backend), name, settings,
                                  {.environment = {},
                                   .deadline = Deadline::after(options.timeout),
                                   .reproducible = options.reproducible});
  return Group(std::move(in_grid.backend), {.timeout = options.timeout});
}

}  // namespace dear
