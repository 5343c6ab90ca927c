#include "dear/base/archive/step_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/archive/shard_set.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/os/remove_tree.h"
#include "dear/base/os/retried.h"
#include "dear/base/vocabulary/error.h"

namespace dear::archive {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStem = "step-";
constexpr std::string_view kEnding = ".pt";

// The step of such a name; none for another.
std::optional<std::int64_t> step_of(std::string_view name, bool folder) {
  if (!name.starts_with(kStem)) return std::nullopt;
  name.remove_prefix(kStem.size());
  if (!folder) {
    if (!name.ends_with(kEnding)) return std::nullopt;
    name.remove_suffix(kEnding.size());
  }
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

}  // namespace

StepFolder::StepFolder(std::string path) : path_(std::move(path)) {
  if (path_.empty() || path_.find('\0') != std::string::npos)
    throw ConfigError("the folder for checkpoints has no name, or a NUL in it: name a folder");
}

// Processes that were forked meanwhile, such as workers that load data, share the lock and may outlive this.
StepFolder::~StepFolder() {
  if (owner_ == ::getpid()) ::flock(lock_.get(), LOCK_UN);
}

StepFolder::Saved StepFolder::of(std::int64_t step, bool sharded) const {
  const std::string name = fmt::format("{}{:08}{}", kStem, step, sharded ? "" : kEnding);
  return {.step = step, .path = (fs::path(path_) / name).string(), .sharded = sharded};
}

std::vector<StepFolder::Saved> StepFolder::saved() const {
  std::vector<Saved> all;
  std::error_code error;
  const fs::directory_iterator entries = os::entries_of(path_, error);
  if (error == std::errc::no_such_file_or_directory) return all;
  if (error)
    throw ConfigError(fmt::format("cannot look for checkpoints in '{}': {} (name a folder that can be read)",
                                  path_, error.message()));
  for (const fs::directory_entry& entry : entries) {
    const bool folder = entry.is_directory(error);
    if (const auto step = step_of(entry.path().filename().string(), folder))
      all.push_back({.step = *step,
                     .path = entry.path().string(),
                     .sharded = folder,
                     .cut_short = folder && is_cut_short(entry.path().string())});
  }
  std::sort(all.begin(), all.end(), [](const Saved& a, const Saved& b) {
    return a.step != b.step ? a.step > b.step : a.path > b.path;
  });
  return all;
}

void StepFolder::open_for_writing() {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_))
    throw ConfigError(
        fmt::format("cannot make the folder '{}' for checkpoints: {} (name a folder, where you may write)",
                    path_, error ? error.message() : "there is a file of that name"));
  if (::access(path_.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(with_errno(fmt::format("cannot write into the folder '{}'", path_), errno) +
                      " (check its permissions, or name another one)");
  lock_ = os::FileDescriptor(
      os::retried([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  kept_out_ = os::NotInChildren(lock_.get());
  // A file system without locks cannot tell.
  if (lock_.is_open() && os::retried([&] { return ::flock(lock_.get(), LOCK_EX | LOCK_NB); }) != 0 &&
      errno == EWOULDBLOCK)
    throw ConfigError(fmt::format(
        "another run, or other Checkpoints of this program, write into '{}': end that run, drop or use those "
        "Checkpoints, or name another folder",
        path_));
  owner_ = ::getpid();
  os::remove_abandoned_files(path_);
  for (const Saved& one : saved())
    if (one.sharded) os::remove_abandoned_files(one.path);
}

void StepFolder::refuse_all(const std::string& why) const {
  throw ConfigError(fmt::format(
      "{}; no checkpoint in '{}' can be read: mend that, or remove them for a training that begins anew", why,
      path_));
}

void StepFolder::keep_newest(int keep, std::optional<std::int64_t> step) const {
  int kept = 0;
  for (const Saved& one : saved()) {
    if (kept < std::max(keep, 1)) {
      kept += (step ? one.step > *step : one.cut_short) ? 0 : 1;
    } else if (const int error = os::remove_tree(one.path); error != 0) {
      throw ConfigError(with_errno(fmt::format("cannot remove the old checkpoint '{}'", one.path), error) +
                        " (remove it, or check the folder's permissions)");
    }
  }
}

}  // namespace dear::archive
