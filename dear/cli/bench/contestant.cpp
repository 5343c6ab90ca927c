#include "dear/cli/bench/contestant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/cli/bench/group_engine.h"
#include "dear/cli/bench/memcpy_engine.h"
#include "dear/collective/init.h"

namespace dear::cli::bench {
namespace {

std::unique_ptr<Engine> open_shm(const EngineOptions& options) {
  return make_group_engine(init({.timeout = options.timeout}));
}
std::unique_ptr<Engine> open_memcpy(const EngineOptions&) { return make_memcpy_engine(); }

std::string never_missing() { return ""; }

}  // namespace

const std::vector<Contestant>& contestants() {
  static const std::vector<Contestant> kTable{
      {.name = "shm", .summary = "DeAR on shared memory", .open = open_shm, .missing = never_missing},
      {.name = "memcpy",
       .summary = "each rank copies its vector once: the floor",
       .rival = true,
       .only_copies = true,
       .open = open_memcpy,
       .missing = never_missing},
  };
  return kTable;
}

const Contestant& find_contestant(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Contestant& contestant : contestants()) {
    if (contestant.name == name) {
      return contestant;
    }
    names.push_back(contestant.name);
  }
  throw ConfigError(fmt::format("there is no contestant '{}'; choose from {}", name, fmt::join(names, ", ")));
}

}  // namespace dear::cli::bench
