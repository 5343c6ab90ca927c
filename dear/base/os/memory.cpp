#include "dear/base/os/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::os {
namespace {

// Returns the number after `key` in a file of "key number" lines.
std::optional<std::int64_t> find_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == key) {
      return number;
    }
  }
  return std::nullopt;
}

// Returns the number that a file holds; nothing when the file is absent or says "max".
std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Control groups, version 2: "0::/path" names ours. File pages that were not used lately are given back under
// pressure.
std::optional<std::int64_t> left_in_control_group() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    if (!line.starts_with("0::")) {
      continue;
    }
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const auto limit = read_number(folder + "/memory.max");
    const auto used = read_number(folder + "/memory.current");
    if (limit && used) {
      return *limit - *used + find_number(folder + "/memory.stat", "inactive_file").value_or(0);
    }
  }
  return std::nullopt;
}

}  // namespace

std::int64_t available_memory() {
  constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();
  const auto kibibytes = find_number("/proc/meminfo", "MemAvailable:");
  const std::int64_t host = kibibytes ? *kibibytes * kKiB : kUnknown;
  return std::max<std::int64_t>(0, std::min(host, left_in_control_group().value_or(kUnknown)));
}

void require_memory(std::int64_t bytes, const std::string& purpose) {
  // For fewer bytes than this the answer is not worth the reading of files.
  constexpr std::int64_t kSmall = 16 * kMiB;
  if (bytes <= kSmall) {
    return;
  }
  if (const std::int64_t available = available_memory(); bytes > available) {
    throw TransportError(fmt::format(
        "cannot allocate {} for {}: only {} of memory are available; use fewer ranks, a smaller model or a "
        "machine (or container limit) with more memory",
        format_bytes(bytes), purpose, format_bytes(available)));
  }
}

}  // namespace dear::os
