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

std::string to_text(const Roster& roster) {
  const std::string text = fmt::format("{} {} {} {}", roster.epoch, roster.open ? 1 : 0, roster.begun ? 1 : 0,
                                       fmt::join(roster.members, " "));
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
  if (!(words >> roster.epoch >> open >> begun)) return std::nullopt;
  roster.open = open == 1;
  roster.begun = begun == 1;
  for (int member = 0; words >> member;) roster.members.push_back(member);
  return roster;
}

}  // namespace dear::membership
