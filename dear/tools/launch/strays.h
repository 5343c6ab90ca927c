#pragma once

#include <string>

namespace dear::launch {

// Kills the processes of this user that a rank of the job has started and that have left its process group
// (setsid), whoever their parent is: the job is in their environment. A process that was given another
// environment is not found. Returns how many were killed.
int kill_strays(const std::string& run_id);

}  // namespace dear::launch
