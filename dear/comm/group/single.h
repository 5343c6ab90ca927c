#pragma once

#include <memory>

#include "dear/comm/group/backend.h"

namespace dear::comm {

// The group of one rank: a real group on private memory.
std::unique_ptr<Backend> make_single();

}  // namespace dear::comm
