#include "dear/base/membership/member.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/interruption.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::membership {
namespace {

os::FileDescriptor opened(const std::string& path, int how) {
  os::FileDescriptor file(::open(path.c_str(), how | O_CLOEXEC));
  if (!file.is_open())
    throw ConfigError(with_errno(
        fmt::format("DEAR_MEMBERSHIP: cannot open '{}', which `dear launch --elastic` sets", path), errno));
  return file;
}

}  // namespace

Member::Member(const std::string& place, int number) : number_(number) {
  const std::size_t colon = place.find(':');
  if (colon == std::string::npos || number < 0)
    throw ConfigError(fmt::format(
        "DEAR_MEMBERSHIP '{}' and DEAR_MEMBER {} name no roster: `dear launch --elastic` sets them", place,
        number));
  roster_ = opened(place.substr(0, colon), O_RDONLY);
  say_ = opened(place.substr(colon + 1), O_WRONLY | O_NONBLOCK);
}

Roster Member::roster() const {
  std::array<char, 16384> bytes;  // 1,024 members of up to ten digits
  for (int tries = 0; tries < 1000; ++tries) {
    const ssize_t got = ::pread(roster_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0)
      if (auto roster = roster_in({bytes.data(), static_cast<std::size_t>(got)})) return *std::move(roster);
    std::this_thread::yield();  // it is just being written
  }
  throw TransportError("the roster of the job cannot be read: its launcher has ended, or is stopped");
}

Roster Member::join(Deadline deadline) const {
  std::int64_t told = -1;
  SteadyTime checked = SteadyClock::now();
  for (;;) {
    Roster now = roster();
    const bool in = now.rank_of(number_).has_value();
    if (in && now.open && told == now.epoch) return now;
    if (in && !now.open && told != now.epoch) say("ready", told = now.epoch);
    // Of an open epoch that does not wait for this process: it came too late, or has left it.
    if (in && now.open && told != now.epoch) ask_again(now);
    if (!in && told == -1) say("comes", told = -2);
    if (deadline.expired())
      throw TimeoutError(fmt::format(
          "the {} members of epoch {} were not all ready to meet within the timeout: one of processes {} is "
          "stuck in a step, or slower than that",
          now.members.size(), now.epoch, fmt::join(now.members, ", ")));
    constexpr auto kInterval = std::chrono::milliseconds(5);
    std::this_thread::sleep_for(kInterval);
    if (SteadyClock::now() - checked > os::kInterruptionInterval) {
      os::check_interruption();
      checked = SteadyClock::now();
    }
  }
}

void Member::ask_again(const Roster& roster) const { say("again", roster.epoch); }

void Member::say(std::string_view what, std::int64_t epoch) const {
  const std::string line = fmt::format("{} {} {}\n", number_, what, epoch);
  // Short lines are written whole or not at all.
  while (::write(say_.get(), line.data(), line.size()) < 0) {
    if (errno != EINTR && errno != EAGAIN)
      throw TransportError(
          with_errno("cannot tell the launcher of this job where this process stands", errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace dear::membership
