#include "dear/base/charts/picture_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::charts {
namespace {

constexpr const char* kConverter = "rsvg-convert";
constexpr std::chrono::seconds kMostSeconds{120};
constexpr double kMostPixels = 32000;  // of a side: cairo takes 32767

struct Format {
  std::string_view ending;
  std::string_view name;   // as rsvg-convert has it; empty where nothing is converted
  std::string_view begin;  // of each such file
};
constexpr std::array<Format, 3> kFormats{
    {{".svg", "", ""}, {".pdf", "pdf", "%PDF-"}, {".png", "png", "\x89PNG"}}};

const Format& format_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return kFormats.front();
  std::string ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const Format& format : kFormats)
    if (format.ending == ending) return format;
  throw ConfigError(
      fmt::format("cannot draw '{}': its ending tells the format; end it in .svg, .pdf or .png", path));
}

// A nameless file in memory. Its user reads and writes from the begin.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("picture", MFD_CLOEXEC)) {
    if (!file_.is_open()) throw Error(with_errno("cannot make a file in memory for a picture", errno));
  }
  [[nodiscard]] int get() const { return file_.get(); }
  void fill(std::string_view content) const {
    for (std::size_t done = 0; done < content.size();) {
      const ssize_t count =
          ::pwrite(file_.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno != EINTR) throw Error(with_errno("cannot write a picture to memory", errno));
      done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
  }
  [[nodiscard]] std::string content() const {
    struct stat status{};
    ::fstat(file_.get(), &status);
    std::string content(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t done = 0;
    while (done < content.size()) {
      const ssize_t count =
          ::pread(file_.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    content.resize(done);
    return content;
  }

 private:
  os::FileDescriptor file_;
};

struct Outcome {
  int error_number = 0;  // of the start
  int status = 0;        // as waitpid() has it
  std::string output, message;
};

// Waits until the process has ended; ends it itself at the deadline.
int wait_for(pid_t pid) {
  const Deadline deadline = Deadline::after(kMostSeconds);
  const os::FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  while (process.is_open() && !deadline.expired()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    const int ready = ::poll(&ended, 1, static_cast<int>(left.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) break;
  }
  if (deadline.expired()) ::kill(pid, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do waited = ::waitpid(pid, &status, 0);
  while (waited < 0 && errno == EINTR);
  return waited == pid ? status : 0;  // who ignores SIGCHLD learns no status; the output tells
}

// Runs rsvg-convert with these arguments on `input`.
Outcome convert(const std::vector<std::string>& arguments, std::string_view input) {
  const MemoryFile in, out, error;
  in.fill(input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.get(), STDERR_FILENO);
  std::vector<char*> words{const_cast<char*>(kConverter)};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  Outcome outcome{.output = {}, .message = {}};
  outcome.error_number = ::posix_spawnp(&pid, kConverter, &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (outcome.error_number != 0) return outcome;
  outcome.status = wait_for(pid);
  outcome.output = out.content();
  outcome.message = error.content();
  return outcome;
}

[[noreturn]] void refuse_without_converter(const std::string& path, const Format& format) {
  throw ConfigError(
      fmt::format("cannot draw '{}': no {} is there, which makes {} of pictures (install librsvg2-bin, "
                  "or name a file that ends in .svg)",
                  path, kConverter, format.name));
}

// PNG has two pixels for each point, fewer where that would be more than cairo takes.
std::string zoom_of(std::string_view svg) {
  double width = 0, height = 0;
  const std::string head(svg.substr(0, 200));
  if (const std::size_t at = head.find("width="); at != std::string::npos)
    static_cast<void>(std::sscanf(head.c_str() + at, "width=\"%lf\" height=\"%lf\"", &width, &height));
  return fmt::format("--zoom={:.4f}", std::min(2.0, kMostPixels / std::max({width, height, 1.0})));
}

std::string why(const Outcome& outcome) {
  const std::string said = outcome.message.substr(0, outcome.message.find('\n'));
  if (!said.empty()) return shortened(said, 300);
  if (WIFSIGNALED(outcome.status)) return fmt::format("signal {} ended it", WTERMSIG(outcome.status));
  return fmt::format("it ended with code {} and wrote no picture", WEXITSTATUS(outcome.status));
}

}  // namespace

void check_picture_path(const std::string& path) {
  const Format& format = format_of(path);
  if (!format.name.empty() && convert({"--version"}, "").error_number != 0)
    refuse_without_converter(path, format);
}

void write_picture(const std::string& path, std::string_view svg) {
  const Format& format = format_of(path);
  if (format.name.empty()) return os::write_file_atomically(path, svg);
  std::vector<std::string> arguments{fmt::format("--format={}", format.name), "--background-color=white"};
  if (format.name == "png") arguments.push_back(zoom_of(svg));
  const Outcome outcome = convert(arguments, svg);
  if (outcome.error_number != 0) refuse_without_converter(path, format);
  if (outcome.status != 0 || !outcome.output.starts_with(format.begin))
    throw Error(fmt::format("cannot make the picture '{}': {} failed: {} (name a file that ends in .svg)",
                            path, kConverter, why(outcome)));
  os::write_file_atomically(path, outcome.output);
}

}  // namespace dear::charts
