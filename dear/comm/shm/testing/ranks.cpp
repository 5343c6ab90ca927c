#include "dear/comm/shm/testing/ranks.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/shm/shm.h"
#include "dear/comm/shm/socket.h"

namespace dear::backends::testing {

std::string fresh_rendezvous() {
  static std::atomic<int> used = 0;
  return fmt::format("test {} {}", getpid(), used++);
}

Group meet_as(int rank, int size, const std::string& rendezvous, const Patience& patience) {
  return Group(make_shm({.rendezvous = rendezvous,
                         .rank = rank,
                         .size = size,
                         .deadline = Deadline::after(patience.meeting)}),
               {.timeout = patience.collective});
}

Holdings holdings() {
  Holdings found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    static_cast<void>(entry);
    ++found.open_files;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    found.segments += line.find("memfd:dear") != std::string::npos ? 1 : 0;
  }
  return found;
}

bool is_listening(const std::string& rendezvous) { return static_cast<bool>(connect_to(rendezvous)); }

}  // namespace dear::backends::testing
