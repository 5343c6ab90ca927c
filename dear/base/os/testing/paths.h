#pragma once

#include <string>
#include <string_view>

namespace dear::testing {

// The path of a file of the source tree, as "docs/study/published.json".
std::string source_file(std::string_view path);

// The path of the command `dear` of this build.
std::string dear_command();

}  // namespace dear::testing
