#pragma once

#include <string>
#include <string_view>

namespace dear::fuzz {

// The path of a file without a place on a disk, with these bytes until the next call.
std::string memory_file(std::string_view bytes);

}  // namespace dear::fuzz
