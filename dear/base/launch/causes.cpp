#include "dear/base/launch/causes.h"

#include <array>
#include <charconv>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/vocabulary/printable.h"

namespace dear::launch {

Causes::Causes() : pipe_(make_pipe()) { set_nonblocking(pipe_.read); }

std::string Causes::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), pipe_.write.get()); }

void Causes::read() {
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = ::read(pipe_.read.get(), bytes.data(), bytes.size())) > 0;)
    if (!first_) text_.append(bytes.data(), static_cast<std::size_t>(got));
  for (std::size_t end = 0; !first_ && (end = text_.find('\n')) != std::string::npos;
       text_.erase(0, end + 1)) {
    const std::string line = text_.substr(0, end);
    int rank = -1;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), rank);
    if (error != std::errc() || rank < 0 || rest == line.data() + line.size() || *rest != ' ') continue;
    note(rank, std::string(rest + 1, line.data() + line.size()));
  }
}

void Causes::note(int rank, const std::string& why) {
  if (first_) return;
  first_ = First{.rank = rank,
                 .why = printable(why),
                 .seconds = std::chrono::duration<double>(SteadyClock::now() - begin_).count()};
}

}  // namespace dear::launch
