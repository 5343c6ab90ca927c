#pragma once

#include <cstdint>
#include <string>

namespace dear::os {

// Bytes that this process can still take without the kernel killing something for it: the host's available
// memory, or what its control group leaves, if that is less.
std::int64_t available_memory();

// TransportError naming the size and the remedy when `bytes` for `purpose` ("a buffer of 4 ranks") are more
// than that. The kernel grants shared memory it does not have and kills whoever touches it, so this is asked
// before.
void require_memory(std::int64_t bytes, const std::string& purpose);

}  // namespace dear::os
