#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace dear::cli {

// "dear trace summary"
std::string name_of(const CLI::App& command);

// A call of the command of this name that shows what it is for; "" for a command of which others are parts.
std::string example_of(std::string_view command);

}  // namespace dear::cli
