#pragma once

#include <string>
#include <string_view>

// Whole files, read and written in one call. Every ConfigError names the file, the system's reason and a
// remedy.
namespace dear {

// Replaces the file at `path` by one with this content. A reader sees the old file or the new one and never a
// part of it, even when this process dies: the content goes to a temporary file beside the target, which is
// renamed when it is complete. A failure leaves the target as it was and no temporary file. A symbolic link
// stays one; an existing file keeps its permissions. A target that cannot be replaced (a pipe, a terminal,
// /dev/stdout) is written to directly.
void write_file_atomically(const std::string& path, std::string_view content);

// All of the file's bytes.
std::string read_file(const std::string& path);

}  // namespace dear
