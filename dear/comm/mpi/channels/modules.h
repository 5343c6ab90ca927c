#pragma once

#include <string>
#include <vector>

#include "dear/comm/mpi/channels/binding.h"

namespace dear::channels {

// The implementations that this build, or this installation, has modules for.
std::vector<std::string> mpi_implementations();

// Loads the module of one. It stays in the process. ConfigError when there is none, or it cannot be loaded.
const MpiBinding& load_mpi_module(const std::string& implementation);

}  // namespace dear::channels
