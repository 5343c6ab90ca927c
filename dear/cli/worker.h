#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace dear::cli {

// Of commands that start themselves again, once for each rank.
inline constexpr const char* kBindOption = "--bind";

// This command as it was given, for the ranks that the launcher starts, without kBindOption: the launcher
// binds where that was asked for. TransportError when the program cannot be found.
std::vector<std::string> own_command();

// Says what went wrong under the rank's name, as ranks share one standard error, and ends the command. What
// every rank throws alike is said once.
[[noreturn]] void fail_as_rank(std::string_view command, int rank, const std::exception& error);

}  // namespace dear::cli
