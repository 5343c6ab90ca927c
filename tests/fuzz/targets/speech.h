#pragma once

#include "tests/fuzz/target.h"
#include <string>

#include "dear/base/admission/message.h"

// A Speech is all that a peer, whom the fuzzer speaks for, says at a meeting.
namespace dear::fuzz {

inline constexpr const char* kJob = "a job";
inline constexpr const char* kSecret = "a secret of a job";
const std::string& key();  // of its meeting

// Sends what has a heading that is right, or bytes as they are by `same`, the socket of the connection.
void speak(Bytes& bytes, admission::MeetingConnection& connection, int same);

// Answers the challenge of a door as one who has the key, for a rank and a number of ranks of the fuzzer's,
// sometimes with a wrong byte.
void prove(Bytes& bytes, admission::MeetingConnection& guest, std::string_view challenge);

}  // namespace dear::fuzz
