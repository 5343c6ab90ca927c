#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

// Who starts the ranks of a library.
enum class Starter : std::uint8_t { bench, openmpi, mpich };

// A library under test: a backend of DeAR or a rival. A benchmark gives each library ranks of its own.
struct Library {
  std::string_view name;
  std::string_view summary;
  Starter starter = Starter::bench;
  bool rival = false;
  bool only_copies = false;  // a copy in each rank, the floor for all collectives
  // Opens the library in one of its ranks; returns when all ranks have met. Throws the library's errors.
  std::unique_ptr<Collectives> (*open)(const LibraryOptions& options) = nullptr;
  // Why this build does not have the library; "" when it does.
  std::string (*missing)() = nullptr;
};
const std::vector<Library>& libraries();             // the table
const Library& find_library(std::string_view name);  // ConfigError

}  // namespace dear::bench_collectives
