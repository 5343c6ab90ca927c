#include "dear/base/diagnosis/visits.h"

#include <cstdlib>
#include <regex>

#include <fmt/format.h>

#include "dear/base/vocabulary/collective.h"

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
  std::string text(name_of(static_cast<Collective>(event.collective)));
  if (event.first > 0) text += fmt::format(" of {} bytes", event.first);
  if (event.second >= 0) text += fmt::format(" (label {})", event.second);
  return text;
}

std::vector<std::vector<int>> sides_in(const std::string& sentence) {
  static const std::regex kSentence("collective [0-9]+: (.*?): every rank must.*"),
      kSide("ranks? ([0-9]+(, [0-9]+)*) (ask|asks|for)\\b"), kNumber("[0-9]+");
  std::smatch found;
  if (!std::regex_match(sentence, found, kSentence)) return {};
  std::vector<std::vector<int>> sides;
  const std::string said = found[1];
  for (std::sregex_iterator side(said.begin(), said.end(), kSide), end; side != end; ++side) {
    const std::string list = (*side)[1];
    std::vector<int>& ranks = sides.emplace_back();
    for (std::sregex_iterator number(list.begin(), list.end(), kNumber); number != end; ++number)
      ranks.push_back(std::atoi(number->str().c_str()));
  }
  return sides;
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

}  // namespace dear::diagnose
