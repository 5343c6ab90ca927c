#include "dear/backends/init.h"

#include <iostream>
#include <utility>

#include <fmt/format.h>

#include "dear/backends/backends.h"
#include "dear/backends/environment.h"
#include "dear/backends/shaped/shaped.h"

namespace dear {

Group init(const InitOptions& options) {
  const Placement placement{.environment = read_launch_environment(),
                            .deadline = Deadline::after(options.timeout),
                            .reproducible = options.reproducible};
  BackendChoice choice = choose_backend(options.backend, placement);
  if (placement.environment.rank == 0 && placement.environment.size > 1) {
    const std::string sentence = fmt::format("backend {}: {}", choice.name, choice.reason);
    if (options.say) {
      options.say(sentence);
    } else {
      std::cerr << fmt::format("dear: {}\n", sentence);
    }
  }
  if (options.network) {
    choice.backend = backends::make_shaped(std::move(choice.backend), *options.network);
  }
  return Group(std::move(choice.backend), {.timeout = options.timeout});
}

}  // namespace dear
