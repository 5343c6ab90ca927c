#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dear::cli {

// What can be known of a file that is written at the end: better now than after the work. The path as given,
// or "" for none; ConfigError naming the option when it is plain that the file cannot be written.
std::string checked_output_path(std::string_view option, const std::optional<std::string>& given);

}  // namespace dear::cli
