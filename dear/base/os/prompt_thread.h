#pragma once

namespace dear::os {

// Asks the scheduler to run the calling thread soon after it wakes, in short time slices: for a thread that
// mostly sleeps and whose delay would hold up every rank. Needs no privilege; a kernel that does not know the
// request ignores it.
//
// [Note: prompt threads] When ranks share cores, a thread that wakes waits until the time slice of the thread
// that computes there has ended: 3 ms by default, longer than a collective of a megabyte takes. Since
// Linux 6.12 a thread may ask for a time slice of its own. A thread with a shorter slice preempts one with a
// longer slice; its share of the core stays the same.
void make_this_thread_prompt();

}  // namespace dear::os
