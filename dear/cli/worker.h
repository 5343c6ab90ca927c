#pragma once

#include <exception>
#include <string_view>

namespace dear::cli {

// Of commands that start themselves again as their ranks: the ranks do not get it, since the launcher binds
// them where it was given.
inline constexpr const char* kBindOption = "--bind";

// Says what went wrong under the rank's name, as ranks share one standard error, and ends the command. What
// every rank throws alike is said once.
[[noreturn]] void fail_as_rank(std::string_view command, int rank, const std::exception& error);

}  // namespace dear::cli
