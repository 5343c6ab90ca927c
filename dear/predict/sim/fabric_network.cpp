#include "dear/predict/sim/fabric_network.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dear::sim {
namespace {

class OneFlow final : public fabric::Rounds {
 public:
  OneFlow(int ranks, double share, bool closed) : ranks_(ranks), share_(share), closed_(closed) {}

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int rounds() const override { return ranks_ > 1 ? 1 : 0; }
  void exchange(int, int rank, fabric::Exchange& into) const override {
    into.sends.clear();
    into.receives.clear();
    if (closed_ || rank + 1 < ranks_) into.sends.push_back({.peer = (rank + 1) % ranks_, .share = share_});
    if (closed_ || rank > 0) into.receives.push_back({.peer = (rank + ranks_ - 1) % ranks_, .share = share_});
  }

 private:
  int ranks_;
  double share_;
  bool closed_;  // the last rank sends to the first
};

}  // namespace

std::shared_ptr<const fabric::Rounds> one_flow_rounds(Collective collective, int ranks) {
  if (collective == Collective::broadcast) return std::make_shared<OneFlow>(ranks, 1, false);
  const int halves = collective == Collective::all_reduce ? 2 : 1;
  return std::make_shared<OneFlow>(ranks, static_cast<double>(halves * (ranks - 1)) / ranks, true);
}

void FabricNetwork::enter(const Visit& visit, double now_seconds) {
  const Team team = teams_.of(group_of_(visit.which.step), visit.rank);
  const Key key{visit.which, team.first};
  const auto [place, is_first] = open_.try_emplace(key);
  Open& open = place->second;
  if (is_first) {
    Transport transport = transport_of_(visit.which.step);
    std::vector<int> members(static_cast<std::size_t>(team.size));
    for (std::size_t i = 0; i < members.size(); ++i) members[i] = team.rank_of(static_cast<int>(i));
    open = {.team = team, .start_up_seconds = transport.start_up_seconds};
    if (transport.chunks) {
      open.chunks =
          std::make_unique<fabric::ChunkTraffic>(traffic_, std::move(transport.chunks), std::move(members));
    } else {
      open.id = traffic_.open(std::move(transport.rounds), transport.bytes, std::move(members));
      keys_.emplace(open.id, key);
    }
  }
  const int member = team.member_of(visit.rank);
  const double seconds = now_seconds + open.start_up_seconds;
  if (open.chunks) {
    open.chunks->enter(member, seconds);
  } else {
    traffic_.enter(open.id, member, seconds);
  }
}

double FabricNetwork::next_seconds() { return traffic_.next_seconds().value_or(kNever); }

void FabricNetwork::advance(std::vector<Visit>& through) {
  for (const fabric::Completion& completion : traffic_.advance(traffic_.next_seconds().value_or(0))) {
    const auto key = keys_.find(completion.collective);
    if (key == keys_.end()) {
      const auto owner = std::find_if(open_.begin(), open_.end(), [&](const auto& open) {
        return open.second.chunks && open.second.chunks->owns(completion);
      });
      owner->second.chunks->note(completion);
      continue;
    }
    const auto open = open_.find(key->second);
    through.push_back({key->second.first, open->second.team.rank_of(completion.member)});
    if (!completion.last) continue;
    open_.erase(open);
    keys_.erase(key);
  }
  for (auto place = open_.begin(); place != open_.end();) {
    const auto& [key, open] = *place;
    if (open.chunks) {
      for (const int member : open.chunks->go_on()) through.push_back({key.first, open.team.rank_of(member)});
    }
    place = open.chunks && open.chunks->all_through() ? open_.erase(place) : std::next(place);
  }
}

}  // namespace dear::sim
