#pragma once

#include <memory>

#include "dear/cli/bench/engine.h"
#include "dear/collective/group.h"

namespace dear::cli::bench {

// A group of DeAR's, whatever its backend, as a program uses it.
std::unique_ptr<Engine> make_group_engine(const Group& group);

}  // namespace dear::cli::bench
