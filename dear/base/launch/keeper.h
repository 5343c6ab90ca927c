#pragma once

#include <sys/types.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

// [Note: keeper] A parent-death signal ends a rank with its launcher, however the launcher ends, but not the
// children of that rank. So the launcher has a keeper: a small process that reads the process groups of the
// ranks from a pipe, of which the launcher holds the other end. When that end closes, because the launcher is
// done or was killed, the keeper kills what is left of every group, and exits. A rank announces its group
// itself, between fork and exec, so no rank ever runs that the keeper does not know.
//
// The launcher reaps a rank only after the keeper has exited: until then the system gives the number of the
// rank's group to no other process.
class Keeper {
 public:
  Keeper();   // TransportError when the process cannot be made
  ~Keeper();  // kills what is left of every announced group
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Called by a child of the launcher between fork and exec, once it has a process group of its own.
  void announce_this_process() const noexcept;

 private:
  os::FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace dear::launch
