#pragma once

#include <optional>
#include <poll.h>
#include <span>
#include <string_view>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// Both ends of a pipe, closed on exec.
struct Pipe {
  os::FileDescriptor read;
  os::FileDescriptor write;
};
Pipe make_pipe();  // TransportError

// Sleeps until one of `files` is ready, a signal comes, or the deadline has passed. Whether one is ready.
// TransportError.
bool poll_until(std::span<pollfd> files, const std::optional<Deadline>& deadline);

void set_nonblocking(const os::FileDescriptor& file);  // TransportError
void write_all(int fd, std::string_view bytes);        // TransportError

}  // namespace dear::launch
