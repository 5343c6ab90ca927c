#pragma once

#include <string>

namespace dear::os {

// Removes a file, or a folder with all that is in it; a link, not what it points at. What is not there is no
// error. Returns 0, or the errno of the first that could not be removed.
//
// Not std::filesystem::remove_all(): releases of libtorch (2.11) export one that calls a null pointer, and a
// program that links them gets it.
[[nodiscard]] int remove_tree(const std::string& path);

}  // namespace dear::os
