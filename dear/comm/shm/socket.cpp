#include "dear/comm/shm/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"

namespace dear::backends {
namespace {

constexpr std::size_t kMaxFiles = Control::kMaxRanks + 1;
constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

// A leading zero byte makes the name abstract. The user's number keeps users of one host apart by name; the
// check of the peer's credentials does so in earnest.
Address address_of(const std::string& rendezvous) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::string name = fmt::format("dear-{}-{}", geteuid(), Digest().add(rendezvous).hex());
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

os::FileDescriptor open_socket() {
  os::FileDescriptor file(socket(AF_UNIX, SOCK_SEQPACKET | kFlags, 0));
  if (!file.is_open()) {
    throw TransportError(with_errno("cannot open a local socket (see ulimit -n)", errno));
  }
  return file;
}

}  // namespace

void Message::set_text(const std::string& message) {
  text.fill('\0');
  message.copy(text.data(), text.size() - 1);
}

int Socket::send(const Message& message, const std::vector<int>& files) const {
  iovec data{.iov_base = const_cast<Message*>(&message), .iov_len = sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFiles * sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!files.empty()) {
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(control), files.data(), files.size() * sizeof(int));
  }
  return sendmsg(file_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ? 0 : errno;
}

Socket::Received Socket::receive(Message& message, std::vector<os::FileDescriptor>& files) const {
  files.clear();
  iovec data{.iov_base = &message, .iov_len = sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFiles * sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  header.msg_controllen = space.size();
  // A peer that closed with unread messages of ours leaves a reset in front of what it sent last.
  ssize_t length = -1;
  for (int attempt = 0; attempt < 2 && length < 0; ++attempt) {
    length = recvmsg(file_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
      return Received::nothing_yet;
    }
  }
  if (length <= 0) {
    return Received::closed;
  }
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(control) + i * sizeof(int), sizeof file);
      files.emplace_back(file);
    }
  }
  const bool ours = length == static_cast<ssize_t>(sizeof message) && message.magic == Message::kMagic &&
                    (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  message.text.back() = '\0';
  return ours ? Received::message : Received::closed;
}

void Socket::wait_readable(Deadline deadline) const {
  pollfd entry{.fd = file_.get(), .events = POLLIN, .revents = 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
}

ucred Socket::peer() const {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(file_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    throw TransportError(with_errno("cannot ask who is at the other end of a local socket", errno));
  }
  return credentials;
}

os::FileDescriptor listen_at(const std::string& rendezvous) {
  os::FileDescriptor file = open_socket();
  const Address address = address_of(rendezvous);
  if (bind(file.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length) != 0) {
    if (errno == EADDRINUSE) {
      return {};
    }
    throw TransportError(with_errno("cannot open the local socket on which ranks meet", errno));
  }
  if (listen(file.get(), 4 * Control::kMaxRanks) != 0) {
    throw TransportError(with_errno("cannot listen on the local socket on which ranks meet", errno));
  }
  return file;
}

Socket connect_to(const std::string& rendezvous) {
  os::FileDescriptor file = open_socket();
  const Address address = address_of(rendezvous);
  if (connect(file.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length) == 0) {
    return Socket(std::move(file));
  }
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) {
    return {};
  }
  throw TransportError(with_errno("cannot connect to rank 0", errno));
}

Socket accept_from(const os::FileDescriptor& listener) {
  return Socket(os::FileDescriptor(accept4(listener.get(), nullptr, nullptr, kFlags)));
}

}  // namespace dear::backends
