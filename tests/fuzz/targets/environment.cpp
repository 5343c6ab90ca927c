#include "dear/comm/backends/environment.h"

#include "tests/fuzz/target.h"
#include <map>

namespace dear::fuzz {

// Lines of NAME=VALUE.
void environment(std::string_view bytes) {
  std::map<std::string, std::string> variables;
  for (Bytes rest(bytes); !rest.empty();) {
    const std::string line(rest.line());
    const std::size_t equals = std::min(line.find('='), line.size());
    variables[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
  }
  refusing([&] {
    const LaunchEnvironment read = read_launch_environment([&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
    if (read.rank < 0 || read.rank >= read.size || read.local_rank < 0 ||
        read.local_rank >= read.local_size || read.local_size > read.size || read.master_port < 0)
      throw Broken("reads ranks that cannot be");
    return read;
  });
}

}  // namespace dear::fuzz
