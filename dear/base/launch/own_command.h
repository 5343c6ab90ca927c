#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear::launch {

// The path of the program that this process runs. TransportError when it cannot be found.
std::string own_program();

// The command line of this process, for ranks that are to run the same, with own_program() as its first word
// and without the words that begin with `left_out`. TransportError.
std::vector<std::string> own_command(std::string_view left_out);

}  // namespace dear::launch
