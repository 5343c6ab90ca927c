#pragma once

#include <chrono>

namespace dear::os {

// [Note: interruptions] A program's thread that waits for other ranks, for as long as their timeout, must
// still hear what the program is told meanwhile: Ctrl-C in an interpreter, whose signal handlers run when its
// thread comes back. So a wait calls, every kInterruptionInterval and without a lock of ours, what was set
// here. It returns, and the wait goes on; or it throws, and the wait ends with that.

inline constexpr std::chrono::milliseconds kInterruptionInterval{200};

// Null for nothing. For the whole process, at any time.
void set_interruption_check(void (*check)());
void check_interruption();

}  // namespace dear::os
