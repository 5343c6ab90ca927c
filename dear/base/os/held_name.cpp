#include "dear/base/os/held_name.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <mutex>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "dear/base/os/at_fork.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::os {
namespace {

constexpr std::chrono::milliseconds kRetry{10};

struct HeldName {
  FileDescriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  NotInChildren kept_out{socket.get()};
};

}  // namespace

std::shared_ptr<const void> hold_name(const std::string& name, Deadline deadline) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const void>> held;
  const std::lock_guard lock(mutex);
  if (auto mine = held[name].lock()) return mine;
  std::erase_if(held, [](const auto& one) { return one.second.expired(); });
  auto here = std::make_shared<HeldName>();
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::copy_n(name.begin(), length, address.sun_path + 1);  // behind a zero: in no file system
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  while (::bind(here->socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 &&
         errno == EADDRINUSE) {
    if (deadline.expired()) return nullptr;
    std::this_thread::sleep_for(kRetry);
  }
  held[name] = here;
  return here;
}

}  // namespace dear::os
