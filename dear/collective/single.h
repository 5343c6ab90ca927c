#pragma once

#include <memory>

#include "dear/collective/backend.h"

namespace dear::collective {

// The group of one rank: a real group on private memory.
std::unique_ptr<Backend> make_single();

}  // namespace dear::collective
