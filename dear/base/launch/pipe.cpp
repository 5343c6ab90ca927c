#include "dear/base/launch/pipe.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "dear/base/vocabulary/error.h"

namespace dear::launch {

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw TransportError(with_errno("cannot make a pipe", errno));
  }
  return {.read = os::FileDescriptor(ends[0]), .write = os::FileDescriptor(ends[1])};
}

bool poll_until(std::span<pollfd> files, const std::optional<Deadline>& deadline) {
  const std::chrono::nanoseconds left = deadline ? deadline->remaining() : std::chrono::nanoseconds(0);
  const timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
  const int ready = ::ppoll(files.data(), files.size(), deadline ? &timeout : nullptr, nullptr);
  if (ready < 0 && errno != EINTR) {
    throw TransportError(with_errno("cannot wait for other processes (ppoll)", errno));
  }
  return ready > 0;
}

void set_nonblocking(const os::FileDescriptor& file) {
  if (::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) | O_NONBLOCK) != 0) {
    throw TransportError(with_errno("cannot make a pipe non-blocking", errno));
  }
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // whoever gave us this file made it non-blocking
      pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      throw TransportError(with_errno("cannot pass on the output of the ranks", errno));
    }
  }
}

}  // namespace dear::launch
