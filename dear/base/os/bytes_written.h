#pragma once

#include <cstdint>

namespace dear::os {

// How many bytes this process has written by write_file_atomically() and AtomicFile (atomic_file.h) so far:
// it grows while a write moves. From any thread.
[[nodiscard]] std::int64_t bytes_written();

}  // namespace dear::os
