#pragma once

#include <string_view>

#include "dear/base/file_descriptor.h"

namespace dear::launch {

// Both ends of a pipe, closed on exec.
struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
Pipe make_pipe();  // TransportError

void set_nonblocking(const FileDescriptor& file);  // TransportError
void write_all(int fd, std::string_view bytes);    // TransportError

}  // namespace dear::launch
