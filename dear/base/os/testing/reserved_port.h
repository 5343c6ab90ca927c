#pragma once

#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::os::testing {

// A port of TCP at which ranks of a test can meet: nobody else is given it while this lives, and a listener
// that allows for others to have used its port may open it. It is reserved on every address of this host, as
// a listener takes it: a connection of somebody else may have the same number on one address alone.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket_.get(), generic, length) != 0 || ::getsockname(socket_.get(), generic, &length) != 0) {
      throw std::runtime_error("no port is free");
    }
    number_ = ntohs(address.sin_port);
  }

  [[nodiscard]] int number() const { return number_; }
  // The socket that has the port, for a test that listens there itself.
  [[nodiscard]] int socket() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  int number_ = 0;
};

}  // namespace dear::os::testing
