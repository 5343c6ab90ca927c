#pragma once

#include <string>
#include <vector>

#include "dear/comm/gloo/meeting/meeting.h"
#include "dear/comm/gloo/meeting/message.h"

namespace dear::channels {

// Rank 0's side of meet(), for two ranks or more.
std::vector<std::string> host_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages);

// Throws what rank 0 says of a meeting that failed, on `rank`.
[[noreturn]] void throw_told(MeetingMessage::Kind kind, int rank, const std::string& why);

}  // namespace dear::channels
