#pragma once

namespace dear {

// Asks the scheduler to let the calling thread run soon after it wakes, in short turns: for threads that
// mostly sleep and whose lateness every rank waits for. Needs no privilege; where the kernel does not know
// the request nothing changes. [Note: prompt threads] When ranks share cores, a thread that wakes waits for
// the slice of whoever computes there to end, 3 ms by default: longer than a collective of a megabyte takes.
// Since Linux 6.12 a thread may ask for a slice of its own; a shorter one lets it preempt a longer one, and
// leaves its share of the core as it is.
void make_this_thread_prompt();

}  // namespace dear
