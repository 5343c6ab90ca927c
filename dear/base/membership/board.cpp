#include "dear/base/membership/board.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::membership {

Board::Board() : memory_(::memfd_create("dear-membership", MFD_CLOEXEC)) {
  std::array<int, 2> ends{};
  if (!memory_.is_open() || ::fchmod(memory_.get(), 0600) != 0 ||
      ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw TransportError(with_errno("no memory or pipe for the membership of the job", errno));
  said_ = os::FileDescriptor(ends[0]);
  say_ = os::FileDescriptor(ends[1]);
}

std::string Board::place() const {
  return fmt::format("/proc/{0}/fd/{1}:/proc/{0}/fd/{2}", ::getpid(), memory_.get(), say_.get());
}

std::vector<std::string> Board::said() {
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = ::read(said_.get(), bytes.data(), bytes.size())) > 0;)
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
  std::vector<std::string> lines;
  for (std::size_t end = 0; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1))
    lines.push_back(unread_.substr(0, end));
  return lines;
}

void Board::publish(const std::string& roster) const {
  if (::pwrite(memory_.get(), roster.data(), roster.size(), 0) != static_cast<ssize_t>(roster.size()))
    throw TransportError(with_errno("cannot write the membership of the job", errno));
}

}  // namespace dear::membership
