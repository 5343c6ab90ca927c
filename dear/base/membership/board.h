#pragma once

#include <string>
#include <vector>

#include "dear/base/os/file_descriptor.h"

namespace dear::membership {

// The roster of a job on one host: memory that its processes read, and a pipe in which they say where they
// stand, [Note: membership]. One thread.
class Board {
 public:
  Board();  // TransportError where the system has no memory or pipe

  // For the environment of each process, as DEAR_MEMBERSHIP.
  [[nodiscard]] std::string place() const;
  // Readable when a process has said something.
  [[nodiscard]] int fd() const { return said_.get(); }
  // The lines that were said since the last call.
  std::vector<std::string> said();
  void publish(const std::string& roster) const;

 private:
  os::FileDescriptor memory_, said_, say_;
  std::string unread_;
};

}  // namespace dear::membership
