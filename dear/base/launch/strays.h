#pragma once

#include <string>

namespace dear::launch {

// Kills the processes of this user that a rank of the job has started and that have left its process group
// (setsid), whoever their parent is: `variable`, "NAME=value", which this launcher alone gives, is in their
// environment. A process that was given another environment is not found. Returns how many were killed.
int kill_strays(const std::string& variable);

}  // namespace dear::launch
