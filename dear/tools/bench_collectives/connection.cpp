#include "dear/tools/bench_collectives/connection.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/launch/pipe.h"
#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {
namespace {

constexpr std::size_t kLongestMessage = 1 << 17;

[[noreturn]] void fail(const char* what) { throw TransportError(with_errno(what, errno)); }

os::FileDescriptor make_socket() {
  os::FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) {
    fail("cannot make a socket for the ranks of a benchmark");
  }
  return socket;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw TransportError(
        fmt::format("'{}' is too long for the path of a socket: set TMPDIR to a shorter one", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A folder that nobody else can look into, for as long as the socket has a name in it.
class PassingFolder {
 public:
  PassingFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "dear-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      fail("cannot make a temporary folder for the socket of a benchmark");
    }
    path_ = pattern;
  }
  ~PassingFolder() {
    ::unlink(socket_path().c_str());
    ::rmdir(path_.c_str());
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  [[nodiscard]] std::string socket_path() const { return path_ + "/s"; }

 private:
  std::string path_;
};

}  // namespace

void Connection::send(std::string_view text, int file) const {
  iovec bytes{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof file)> control{};
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    fail("cannot send to the other process of a benchmark");
  }
}

std::optional<Connection::Message> Connection::receive(Deadline deadline) const {
  std::array<pollfd, 1> readable{{{.fd = socket_.get(), .events = POLLIN, .revents = 0}}};
  while (!launch::poll_until(readable, deadline)) {
    if (deadline.expired()) {
      throw TimeoutError("the other process of a benchmark sent nothing in time; give a longer --timeout");
    }
  }
  Message result{.text = std::string(kLongestMessage, '\0'), .file = {}};
  iovec bytes{.iov_base = result.text.data(), .iov_len = result.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno != ECONNRESET) {
    fail("cannot receive from the other process of a benchmark");
  }
  if (got <= 0) {
    return std::nullopt;
  }
  result.text.resize(static_cast<std::size_t>(got));
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header && header->cmsg_type == SCM_RIGHTS) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
    result.file = os::FileDescriptor(file);
  }
  return result;
}

bool Connection::wait_for_close(const os::FileDescriptor& stop) const {
  std::array<pollfd, 2> files{{{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0},
                               {.fd = stop.get(), .events = POLLIN, .revents = 0}}};
  while (::poll(files.data(), files.size(), -1) < 0 && errno == EINTR) {
  }
  return files[0].revents != 0;
}

os::FileDescriptor Connection::pidfd() const {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail("cannot find the process of a rank of a benchmark");
  }
  return os::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

ControlListener::ControlListener() : socket_(make_socket()) {
  const PassingFolder folder;
  const sockaddr_un address = address_of(folder.socket_path());
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket_.get(), SOMAXCONN) != 0) {
    fail("cannot listen for the ranks of a benchmark");
  }
  name_ = os::FileDescriptor(::open(folder.socket_path().c_str(), O_PATH | O_CLOEXEC));
  if (!name_.is_open()) {
    fail("cannot open the socket of a benchmark");
  }
}

std::string ControlListener::address() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), name_.get());
}

Connection ControlListener::accept() const {
  os::FileDescriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.is_open()) {
    fail("cannot accept the connection of a rank of a benchmark");
  }
  return Connection(std::move(socket));
}

Connection connect_to(const std::string& address) {
  os::FileDescriptor socket = make_socket();
  const sockaddr_un there = address_of(address);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    throw TransportError(with_errno(
        fmt::format(
            "cannot reach the coordinator of a benchmark at '{}' (`dear bench` starts its workers itself)",
            address),
        errno));
  }
  return Connection(std::move(socket));
}

}  // namespace dear::bench_collectives
