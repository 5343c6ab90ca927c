#pragma once

#include <string>
#include <string_view>

// Whole files, read and written in one call. Every ConfigError names the file, the system's reason and a
// remedy.
namespace dear {

// Writes `content`, byte for byte, so that a reader sees the old file or the new one and never half of one,
// also when this process dies: to a temporary file beside the target, which takes the target's place when it
// is complete. A failure leaves the target as it was and no temporary file. A symbolic link stays one; an
// existing file keeps its permissions. A target that cannot be replaced (a pipe, a terminal, /dev/stdout) is
// written to as it is.
void write_file_atomically(const std::string& path, std::string_view content);

std::string read_file(const std::string& path);

}  // namespace dear
