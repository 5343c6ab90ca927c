#include "dear/base/membership/roster.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/digest.h"

namespace dear::membership {

std::optional<int> Roster::rank_of(int member) const {
  const auto at = std::find(members.begin(), members.end(), member);
  if (at == members.end()) return std::nullopt;
  return static_cast<int>(at - members.begin());
}

int Roster::local_rank(int rank) const {
  if (hosts.empty()) return rank;
  const auto at = hosts.begin() + rank;
  return static_cast<int>(std::count(hosts.begin(), at, *at));
}

int Roster::local_size(int rank) const {
  if (hosts.empty()) return static_cast<int>(members.size());
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(rank)]));
}

std::string to_text(const Roster& roster) {
  std::string text = fmt::format("{} {} {} {} {}", roster.epoch, roster.open ? 1 : 0, roster.begun ? 1 : 0,
                                 roster.members.size(), fmt::join(roster.members, " "));
  if (!roster.hosts.empty())
    text += fmt::format(" {} {} {}", fmt::join(roster.hosts, " "), roster.address, roster.port);
  return fmt::format("{}|{}\n", text, Digest().add(text).hex());
}

std::optional<Roster> roster_in(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const std::size_t bar = text.find('|');
  if (bar == std::string_view::npos || text.substr(bar + 1) != Digest().add(text.substr(0, bar)).hex())
    return std::nullopt;
  std::istringstream words{std::string(text.substr(0, bar))};
  Roster roster;
  int open = 0, begun = 0;
  std::size_t count = 0;
  if (!(words >> roster.epoch >> open >> begun >> count) || count > text.size()) return std::nullopt;
  roster.open = open == 1;
  roster.begun = begun == 1;
  const auto read = [&](std::vector<int>& numbers) {
    for (int number = 0; numbers.size() < count && words >> number;) numbers.push_back(number);
    return numbers.size() == count;
  };
  if (!read(roster.members)) return std::nullopt;
  if ((words >> std::ws).eof()) return roster;
  if (!read(roster.hosts) || !(words >> roster.address >> roster.port)) return std::nullopt;
  return roster;
}

}  // namespace dear::membership
