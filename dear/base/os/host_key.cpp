#include "dear/base/os/host_key.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

namespace dear::os {

std::string host_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::string key = fmt::format("boot {} user {}", boot, geteuid());
  for (const std::string_view space : {"net", "pid", "ipc"}) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", space), error);
    key += error ? fmt::format(" no {}", space) : fmt::format(" {}", target.string());
  }
  return key;
}

}  // namespace dear::os
