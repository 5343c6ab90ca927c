#include "dear/train/metrics/metrics_file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/os/retried.h"
#include "dear/base/vocabulary/error.h"

namespace dear::metrics {
namespace {

constexpr std::string_view kRank = "{rank}";

}  // namespace

std::string path_of_rank(const std::string& path, int rank) {
  std::string result = path;
  if (const std::size_t at = result.find(kRank); at != std::string::npos)
    result.replace(at, kRank.size(), fmt::to_string(rank));
  return result;
}

MetricsFile::MetricsFile(const std::string& path)
    : file_(
          os::retried([&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); })) {
  if (!file_.is_open())
    throw ConfigError(with_errno("cannot write metrics to " + path, errno) +
                      ": name a file in a folder that exists");
}

void MetricsFile::write(const StepMetrics& metrics) {
  const std::string line = to_json_line(metrics, lost_) + '\n';
  const off_t end = lseek(file_.get(), 0, SEEK_END);  // -1 for a pipe
  const ssize_t written = os::retried([&] { return ::write(file_.get(), line.data(), line.size()); });
  if (written == static_cast<ssize_t>(line.size())) {
    lost_ = 0;
    return;
  }
  ++lost_;
  // Half a line goes; where that fails, too, it stays, as nothing better is left to do.
  if (written > 0 && end >= 0 && os::retried([&] { return ftruncate(file_.get(), end); }) != 0) return;
}

}  // namespace dear::metrics
