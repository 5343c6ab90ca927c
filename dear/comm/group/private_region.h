#pragma once

#include <cstdint>

#include "dear/comm/group/buffer.h"

namespace dear::comm {

// Allocates memory of this process alone, zeroed and aligned to a page. ConfigError for a negative size;
// TransportError naming the size and the remedy when it cannot be had.
Buffer allocate_private(std::int64_t bytes);

}  // namespace dear::comm
