#include "dear/base/membership/registrar.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

namespace dear::membership {

Registrar::Registrar(int members, Hosts hosts) : hosts_(std::move(hosts)) {
  roster_.members.resize(static_cast<std::size_t>(members));
  std::iota(roster_.members.begin(), roster_.members.end(), 0);
  publish();
}

void Registrar::read() {
  for (const std::string& line : board_.said()) hear(line);
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

void Registrar::publish() {
  if (hosts_.of) {
    roster_.hosts.clear();
    for (const int member : roster_.members) roster_.hosts.push_back(hosts_.of(member).number);
    if (!roster_.members.empty()) {
      const Host first = hosts_.of(roster_.members.front());
      roster_.address = first.address;
      roster_.port = first.port;
    }
  }
  const std::string text = to_text(roster_);
  board_.publish(text);
  if (hosts_.publish) hosts_.publish(text);
}

}  // namespace dear::membership
