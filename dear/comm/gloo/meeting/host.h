#pragma once

#include <memory>
#include <netdb.h>
#include <string>
#include <vector>

#include "dear/base/admission/door.h"
#include "dear/base/admission/message.h"
#include "dear/comm/gloo/meeting/meeting.h"

namespace dear::channels {

using admission::Addresses;

// Those to which the master's name leads. TransportError where there is none.
Addresses addresses_of_master(const MeetingOptions& options, int type);

// The key of a meeting, on both sides.
std::string meeting_key(const MeetingOptions& options);

// Rank 0's side of open_meeting(), for two ranks or more.
std::unique_ptr<Meeting> host_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages);

// Throws what rank 0 says of a meeting that failed, on `rank`.
[[noreturn]] void throw_told(admission::MeetingMessage::Kind kind, int rank, const std::string& why);
// How a rank tells of its error: throw_told() throws the like of it.
admission::MeetingMessage::Kind kind_of(const Error& error);

}  // namespace dear::channels
