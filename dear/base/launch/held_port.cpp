#include "dear/base/launch/held_port.h"

#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/admission/door.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {

HeldPort hold_port(const std::string& address) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  if (::getaddrinfo(address.c_str(), "0", &hints, &found) != 0)
    throw TransportError(fmt::format("'{}' is no address of this host", address));
  const admission::Addresses owner(found, freeaddrinfo);
  auto socket =
      std::make_shared<os::FileDescriptor>(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  const int on = 1;
  if (!socket->is_open() || ::bind(socket->get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    throw TransportError(with_errno(fmt::format("cannot find a free port on {}", address), errno));
  const auto port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                : reinterpret_cast<sockaddr_in&>(bound).sin_port;
  return {.socket = std::move(socket), .port = ntohs(port)};
}

}  // namespace dear::launch
