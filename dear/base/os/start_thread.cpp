#include "dear/base/os/start_thread.h"

#include <string>
#include <system_error>
#include <utility>

#include "dear/base/os/blocked_signals.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os {

std::thread start_thread(std::string_view what, std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw TransportError(with_errno("cannot start the thread " + std::string(what), error.code().value()) +
                         "; end other processes, or allow more threads (ulimit -u) and memory (ulimit -v)");
  }
}

}  // namespace dear::os
