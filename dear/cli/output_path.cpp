#include "dear/cli/output_path.h"

#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear::cli {

std::string checked_output_path(std::string_view option, const std::optional<std::string>& given) {
  if (!given) {
    return "";
  }
  const auto refuse = [&](const std::string& reason) {
    throw ConfigError(fmt::format("{}: cannot write '{}': {}", option, *given, reason));
  };
  if (given->empty()) {
    throw ConfigError(fmt::format("{} is empty; name a file", option));
  }
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::weakly_canonical(*given, ignored);
  struct stat status{};
  const bool exists = stat(given->c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    refuse("it is a folder; name a file in it");
  }
  const bool replaced = !exists || S_ISREG(status.st_mode);  // else written to as it is: a pipe, a terminal
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  if (exists && access(given->c_str(), W_OK) != 0) {
    refuse(with_errno("not allowed", errno));
  }
  if (replaced && stat(folder.c_str(), &status) != 0) {
    refuse(with_errno(fmt::format("its folder '{}' cannot be used", folder), errno));
  }
  if (replaced && !S_ISDIR(status.st_mode)) {
    refuse(fmt::format("'{}' is no folder", folder));
  }
  if (replaced && access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(with_errno(fmt::format("its folder '{}' cannot be written to", folder), errno));
  }
  return *given;
}

}  // namespace dear::cli
