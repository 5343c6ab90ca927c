#pragma once

#include <string>

namespace dear::cli {

// The text of `dear --version`: "dear 0.2.0 (commit 1a2b3c4)", and the PyTorch, MPI and Gloo that are there.
std::string version_text();

}  // namespace dear::cli
