#include "dear/base/diagnosis/visits.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace dear::diagnose {

using recorder::Event;
using recorder::Kind;

Visits visits_of(const recorder::Record& record) {
  Visits visits;
  for (const Event& event : record.events) {
    Visit& visit = visits[{event.group, event.number}];
    if (event.kind == Kind::begun) visit.begun = &event;
    if (event.kind == Kind::ended || event.kind == Kind::failed) visit.ended = &event;
  }
  std::erase_if(visits, [](const auto& one) { return one.second.begun == nullptr; });
  return visits;
}

std::string describe(const Event& event) {
  std::string text(recorder::name_of_collective(event.collective));
  if (event.first > 0) text += fmt::format(" of {} bytes", event.first);
  if (event.second >= 0) text += fmt::format(" (label {})", event.second);
  return text;
}

namespace {

// Calls `visit` with the ranks of each side, and with the text behind its "ask for".
void visit_sides(const std::string& sentence,
                 const std::function<void(std::vector<int> ranks, std::string_view asks)>& visit) {
  static const std::regex kSentence("collective [0-9]+: (.*?): every rank must.*"),
      kSide("ranks? ([0-9]+(, [0-9]+)*) ((ask|asks) )?for\\b"), kNumber("[0-9]+");
  std::smatch found;
  if (!std::regex_match(sentence, found, kSentence)) return;
  const std::string said = found[1];
  for (std::sregex_iterator side(said.begin(), said.end(), kSide), end; side != end; ++side) {
    const std::string list = (*side)[1];
    std::vector<int> ranks;
    for (std::sregex_iterator number(list.begin(), list.end(), kNumber); number != end; ++number)
      ranks.push_back(std::atoi(number->str().c_str()));
    visit(std::move(ranks),
          std::string_view(said).substr(static_cast<std::size_t>(side->position() + side->length())));
  }
}

}  // namespace

std::vector<std::vector<int>> sides_in(const std::string& sentence) {
  std::vector<std::vector<int>> sides;
  visit_sides(sentence, [&](std::vector<int> ranks, std::string_view) { sides.push_back(std::move(ranks)); });
  return sides;
}

std::vector<int> ended_in(const std::string& sentence) {
  std::vector<int> ended;
  visit_sides(sentence, [&](std::vector<int> ranks, std::string_view asks) {
    if (asks.starts_with(" the end of its DataParallel ")) ended = std::move(ranks);  // comm's describe()
  });
  return ended;
}

Standing standing_of(const recorder::Record& record) {
  Standing standing;
  std::map<std::uint16_t, const Event*> open;
  for (const Event& event : record.events) {
    if (event.kind == Kind::begun) open[event.group] = &event;
    if (event.kind == Kind::ended) open.erase(event.group);
    if (event.kind == Kind::files) standing.files = &event;
    if (event.kind == Kind::files_done) standing.files = nullptr;
    standing.last = event.nanoseconds;
  }
  // A group that waits longest says where the rank is.
  for (const auto& [group, event] : open)
    if (standing.in == nullptr || event->nanoseconds < standing.in->nanoseconds) standing.in = event;
  return standing;
}

std::vector<int> fewest_of(const std::vector<std::vector<int>>& sides) {
  std::size_t most = 0;
  for (const auto& side : sides) most = std::max(most, side.size());
  std::vector<int> minority, all;
  for (const auto& side : sides) {
    all.insert(all.end(), side.begin(), side.end());
    if (side.size() < most) minority.insert(minority.end(), side.begin(), side.end());
  }
  std::vector<int>& found = minority.empty() ? all : minority;
  std::sort(found.begin(), found.end());
  return found;
}

void add_others(std::vector<std::vector<int>>& sides, const std::vector<Standing>& standings) {
  std::vector<std::string> doing(sides.size());
  std::vector<bool> is_named(standings.size());
  for (std::size_t side = 0; side < sides.size(); ++side)
    for (const int rank : sides[side]) {
      const auto place = static_cast<std::size_t>(rank);
      if (place >= standings.size()) continue;
      is_named[place] = true;
      if (standings[place].in != nullptr) doing[side] = describe(*standings[place].in);
    }
  const auto unseen = std::find(doing.begin(), doing.end(), "");
  const bool one_unseen = unseen != doing.end() && std::find(unseen + 1, doing.end(), "") == doing.end();
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    if (is_named[rank] || standings[rank].in == nullptr) continue;
    const auto side = std::find(doing.begin(), doing.end(), describe(*standings[rank].in));
    if (side != doing.end() || one_unseen)
      sides[static_cast<std::size_t>((side != doing.end() ? side : unseen) - doing.begin())].push_back(
          static_cast<int>(rank));
  }
}

}  // namespace dear::diagnose
