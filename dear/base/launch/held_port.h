#pragma once

#include <memory>
#include <string>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

// A port of this host that is free, held without listening as long as the descriptor lives: the system gives
// it to nobody who asks for any port, and a rank can listen there (SO_REUSEADDR, as TCPStore does).
struct HeldPort {
  std::shared_ptr<const os::FileDescriptor> socket = nullptr;
  int port = 0;
};
// At an address of this host, a number. TransportError.
HeldPort hold_port(const std::string& address);

}  // namespace dear::launch
