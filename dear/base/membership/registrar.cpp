#include "dear/base/membership/registrar.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <numeric>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::membership {

Registrar::Registrar(int members) : memory_(::memfd_create("dear-membership", MFD_CLOEXEC)) {
  std::array<int, 2> ends{};
  if (!memory_.is_open() || ::fchmod(memory_.get(), 0600) != 0 ||
      ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw TransportError(with_errno("no memory or pipe for the membership of the job", errno));
  said_ = os::FileDescriptor(ends[0]);
  say_ = os::FileDescriptor(ends[1]);
  roster_.members.resize(static_cast<std::size_t>(members));
  std::iota(roster_.members.begin(), roster_.members.end(), 0);
  publish();
}

std::string Registrar::place() const {
  return fmt::format("/proc/{0}/fd/{1}:/proc/{0}/fd/{2}", ::getpid(), memory_.get(), say_.get());
}

void Registrar::read() {
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = ::read(said_.get(), bytes.data(), bytes.size())) > 0;)
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
  for (std::size_t end = 0; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1))
    hear(std::string_view(unread_).substr(0, end));
}

void Registrar::hear(std::string_view line) {
  std::istringstream words{std::string(line)};
  int member = -1;
  std::string what;
  std::int64_t epoch = -1;
  if (!(words >> member >> what)) return;
  following_.insert(member);
  if (what == "comes" && !roster_.rank_of(member)) {
    ended_.erase(member);
    roster_.members.push_back(member);
    return begin_epoch();
  }
  if (!(words >> epoch) || epoch != roster_.epoch || !roster_.rank_of(member)) return;
  if (what == "again") return begin_epoch();
  if (what != "ready" || roster_.open) return;
  ready_.insert(member);
  const auto works = [this](int one) { return this->works(one); };
  roster_.open = std::all_of(roster_.members.begin(), roster_.members.end(),
                             [this](int one) { return ready_.contains(one); }) &&
                 (!roster_.begun || std::any_of(roster_.members.begin(), roster_.members.end(), works));
  if (!roster_.open) return;
  working_.insert(roster_.members.begin(), roster_.members.end());
  for (const int one : roster_.members) last_open_[one] = roster_.epoch;
  publish();
}

void Registrar::enters(int member) {
  following_.erase(member);
  working_.erase(member);
}

void Registrar::leaves(int member, bool well) {
  enters(member);
  if (!roster_.rank_of(member)) return;
  ended_.insert(member);
  if (!well) failed_at_ = roster_.epoch;
  if (!well || !roster_.open) begin_epoch();
}

bool Registrar::fails_with_another(int member) const {
  const auto found = last_open_.find(member);
  return failed_at_ >= 0 && found != last_open_.end() && found->second <= failed_at_;
}

void Registrar::begin_epoch() {
  std::erase_if(roster_.members, [this](int one) { return ended_.contains(one); });
  ready_.clear();
  roster_.begun = roster_.begun || roster_.open || !working_.empty();
  roster_.open = false;
  ++roster_.epoch;
  publish();
}

void Registrar::publish() const {
  const std::string text = to_text(roster_);
  if (::pwrite(memory_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw TransportError(with_errno("cannot write the membership of the job", errno));
}

}  // namespace dear::membership
