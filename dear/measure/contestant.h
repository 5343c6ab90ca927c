#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dear/measure/engine.h"

namespace dear::measure {

// Who starts the ranks of a contestant.
enum class Starter : std::uint8_t { bench, openmpi, mpich };

// A backend of DeAR's, or a rival: one row of the table, one kind of engine, one set of processes.
struct Contestant {
  std::string_view name;
  std::string_view summary;
  Starter starter = Starter::bench;
  bool rival = false;
  bool only_copies = false;  // takes no part in collectives: the floor for all of them
  // In each of its ranks. Meets the peers; throws what the engine throws.
  std::unique_ptr<Engine> (*open)(const EngineOptions& options) = nullptr;
  // Why this build does not have it; "" when it does.
  std::string (*missing)() = nullptr;
};
const std::vector<Contestant>& contestants();
const Contestant& find_contestant(std::string_view name);  // ConfigError

}  // namespace dear::measure
