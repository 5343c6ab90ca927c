#include "dear/base/launch/sink.h"

#include <array>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include <climits>
#include <fmt/format.h>

#include "dear/base/launch/pipe.h"

namespace dear::launch {
namespace {

std::vector<std::string> prefixes(const LaunchOptions& options) {
  std::vector<std::string> prefixes;
  for (int rank = 0; rank < options.ranks; ++rank)
    prefixes.push_back(options.prefix ? fmt::format("[{}] ", rank) : "");
  prefixes.push_back(options.who + ": ");
  return prefixes;
}

}  // namespace

Sink::Sink(int fd, const LaunchOptions& options)
    : fd_(fd), lines_(prefixes(options)), launcher_(static_cast<std::size_t>(options.ranks)) {
  if (options.ranks_say_why) failures_.emplace(options.who);
  begun_.resize(launcher_);
}

void Sink::read_from(int rank, os::FileDescriptor& source) {
  if (!source.is_open() || !takes()) return;
  std::array<char, 1 << 16> bytes;
  const ssize_t got = ::read(source.get(), bytes.data(), bytes.size());
  if (got > 0) {
    take(static_cast<std::size_t>(rank), {bytes.data(), static_cast<std::size_t>(got)});
  } else if (got == 0) {
    source.close();
  }
}

void Sink::write() {
  for (pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
       !empty() && ::poll(&writable, 1, 0) > 0;) {
    const std::string_view next = lines_.pending().substr(0, PIPE_BUF);
    write_all(fd_, next);
    lines_.written(next.size());
  }
}

void Sink::finish() {
  for (std::size_t rank = 0; rank < begun_.size(); ++rank)
    if (!begun_[rank].empty()) lines_.feed(rank, std::exchange(begun_[rank], ""), SteadyClock::now());
  if (failures_)
    for (const std::string& line : failures_->said_once()) lines_.feed(0, line + "\n", SteadyClock::now());
  failures_.reset();
  lines_.finish();
}

void Sink::take(std::size_t rank, std::string_view bytes) {
  if (!failures_) return lines_.feed(rank, bytes, SteadyClock::now());
  std::string& begun = begun_[rank];
  begun += bytes;
  for (std::size_t end = 0; (end = begun.find('\n')) != std::string::npos; begun.erase(0, end + 1))
    if (failures_->take(std::string_view(begun).substr(0, end))) {
      knows_why_ = true;
    } else {
      lines_.feed(rank, std::string_view(begun).substr(0, end + 1), SteadyClock::now());
    }
  if (begun.size() >= RankOutput::kLongestLine)
    lines_.feed(rank, std::exchange(begun, ""), SteadyClock::now());
}

void Sink::say(const std::string& sentence) {
  lines_.feed(launcher_, sentence + "\n", SteadyClock::now());
  write();
}

}  // namespace dear::launch
