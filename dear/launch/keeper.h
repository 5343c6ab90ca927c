#pragma once

#include <sys/types.h>

#include "dear/base/file_descriptor.h"

namespace dear::launch {

// [Note: keeper] A parent-death signal ends a rank with its launcher, however the launcher ends, but not the
// children of that rank. So a small process stands by for as long as the launcher lives. It reads the process
// groups of the ranks from a pipe of which the launcher holds the other end; when that end closes, because
// the launcher is done or was killed, it kills what is left of every group, and exits. A rank announces its
// group itself, between fork and exec: there is no moment in which it runs unknown.
//
// The launcher reaps a rank only after the keeper has gone, so the number of its group cannot have passed to
// a stranger.
class Keeper {
 public:
  Keeper();   // TransportError when the process cannot be made
  ~Keeper();  // what is left of every group is dead afterwards
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // For a child of the launcher that is to be watched, with its own process group: between fork and exec.
  void announce_this_process() const noexcept;

 private:
  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace dear::launch
