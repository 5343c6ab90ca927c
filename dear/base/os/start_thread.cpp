#include "dear/base/os/start_thread.h"

#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "dear/base/os/blocked_signals.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os {
namespace {

// What the C library makes for a thread when it first needs it, without which it ends the process: in a
// process that has run out of memory that would be when an error is to be told.
void make_room() {
  void* volatile piece = std::malloc(1);
  std::free(piece);
  static_cast<void>(std::uncaught_exceptions());
}

}  // namespace

std::thread start_thread(std::string_view what, std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread([body = std::move(body)] {
      make_room();
      body();
    });
  } catch (const std::system_error& error) {
    throw TransportError(with_errno("cannot start the thread " + std::string(what), error.code().value()) +
                         "; end other processes, or allow more threads (ulimit -u) and memory (ulimit -v)");
  }
}

}  // namespace dear::os
