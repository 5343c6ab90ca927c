#pragma once

#include <csignal>
#include <optional>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 in the calling thread for the life of this
// object, and makes them readable from a file instead.
class HeldSignals {
 public:
  HeldSignals();  // TransportError
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  [[nodiscard]] int fd() const { return file_.get(); }              // readable when there is one
  [[nodiscard]] const sigset_t& before() const { return before_; }  // this thread's mask, for its children
  [[nodiscard]] std::optional<int> next() const;

 private:
  sigset_t held_{};
  sigset_t before_{};
  os::FileDescriptor file_;
};

}  // namespace dear::launch
