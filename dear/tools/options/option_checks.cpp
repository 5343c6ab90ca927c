#include "dear/tools/options/option_checks.h"

#include <cerrno>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"

namespace dear::cli {

void check_range(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw ConfigError(fmt::format("{} is {}, but must be from {} to {}", option, value, least, most));
  }
}

double checked_timeout(const std::string& text, std::string_view usual) {
  const double seconds = parse_option("--timeout", [&] { return parse_seconds(text); });
  if (seconds <= 0) {
    throw ConfigError(fmt::format("--timeout is 0, but must be longer; {} is the default", usual));
  }
  return seconds;
}

void refuse_several(std::string_view what, std::size_t count, std::string_view give) {
  if (count != 1) throw ConfigError(fmt::format("{}, and {} were asked for: give one {}", what, count, give));
}

int checked_workers(const std::optional<std::int64_t>& given, int usual,
                    const LaunchEnvironment& environment) {
  if (given) check_range("--workers", *given, 1, launch::kMostRanks);
  if (environment.size == 1) return static_cast<int>(given.value_or(usual));
  if (given.value_or(environment.size) != environment.size) {
    throw ConfigError(
        fmt::format("--workers is {}, but {} has started {} ranks; leave --workers out under a launcher",
                    *given, environment.launcher, environment.size));
  }
  return environment.size;
}

ModelledNetwork checked_network(const std::string& text, const std::string& backend, int ranks) {
  ModelledNetwork network = parse_option("--network", [&] { return parse_modelled_network(text); });
  parse_option("--network", [&] { return require_ranks(network, ranks), 0; });
  if (std::holds_alternative<PairCluster>(network) && !backend.empty())
    parse_option("--network", [&] { return require_messages(backend), 0; });
  return network;
}

void refuse_bind_under_launcher(bool bind, const LaunchEnvironment& environment) {
  if (bind && environment.size > 1) {
    throw ConfigError(fmt::format(
        "--bind places the workers that --workers starts, but {} has started these; let it place them",
        environment.launcher));
  }
}

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
  if (!exists && errno != ENOENT) {
    refuse(with_errno("no such path can be", errno));
  }
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

std::string checked_picture_path(std::string_view option, const std::optional<std::string>& given) {
  std::string path = checked_output_path(option, given);
  if (!path.empty()) parse_option(option, [&path] { charts::check_picture_path(path); });
  return path;
}

std::string checked_output_folder(std::string_view option, const std::string& given) {
  if (given.empty()) throw ConfigError(fmt::format("{} is empty; name a folder", option));
  const auto refuse = [&](const std::string& reason) {
    throw ConfigError(fmt::format("{}: cannot write into the folder '{}': {}", option, given, reason));
  };
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(given, error);  // that exists: it, or one above it
  struct stat status{};
  while (::stat(there.c_str(), &status) != 0) {
    if (errno != ENOENT || there == there.parent_path()) refuse(with_errno("no such folder can be", errno));
    there = there.parent_path();
  }
  if (!S_ISDIR(status.st_mode)) refuse(fmt::format("'{}' is no folder", there.string()));
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    refuse(with_errno(fmt::format("'{}' cannot be written to", there.string()), errno));
  return given;
}

void refuse_shared_outputs(const Outputs& outputs) {
  std::map<std::string, std::string_view> option_of;
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    std::error_code ignored;
    const std::filesystem::path whole = std::filesystem::absolute(path, ignored);
    const std::string file = std::filesystem::weakly_canonical(whole, ignored).string();
    // A pipe, a terminal or /dev/null takes what several write.
    if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) continue;
    const auto [found, is_new] = option_of.emplace(file.empty() ? path : file, option);
    if (!is_new)
      throw ConfigError(
          fmt::format("{} and {} name the same file; give each its own", found->second, option));
  }
}

void check_outputs(const Outputs& outputs) {
  for (const auto& [option, path] : outputs)
    if (!path.empty())
      static_cast<void>(option == "--plot" || option == "--picture" || option == "--timeline"
                            ? checked_picture_path(option, path)
                            : checked_output_path(option, path));
  refuse_shared_outputs(outputs);
}

}  // namespace dear::cli
