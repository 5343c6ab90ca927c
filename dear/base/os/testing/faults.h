#pragma once

#include <string>

// Faults of the system on demand: the library dear_os_faults stands before the C library, in a program that
// links it or has it in LD_PRELOAD, and lets calls go wrong by a plan. Without a plan every call goes
// through.
//
// A plan is words between blanks. A word CALL:WHEN:FAULT is a rule, of which each counts its own calls:
//   CALL   open, read, write, fsync, close, rename, unlink, mkdir, flock, truncate; any, which is all of
//   these but
//          unlink; clock, a look at the wall clock
//   WHEN   3: the third call; 3+: the third and each later one; 1/20: one in 20, drawn by the seed
//   FAULT  the name of an errno (EIO, ENOSPC, EINTR, EACCES); short: half of the bytes of a read or write;
//   slow=S: S
//          seconds more; kill, stop: SIGKILL or SIGSTOP to the process; fork: a child that ends at once; for
//          the clock jump=S: the wall clock goes S seconds forward or back from now on, drawn by the seed
// The other words are settings, which hold for all rules:
//   seed=N   of what is drawn (0)
//   path=P   only files count whose path has P in it
//   rank=R   only in the process whose environment says RANK=R
//   log=F    each fault adds a line to this file: CALL NUMBER FAULT PATH
// The environment's DEAR_FAULTS is the plan that a process begins with; a plan that nobody can read ends it.
namespace dear::os::testing {

// Puts this plan in the place of the one before, and counts anew. Any thread; other threads may be in calls.
void plan_faults(const std::string& plan);
// Faults of the plan that have happened.
int faults_happened();

}  // namespace dear::os::testing
