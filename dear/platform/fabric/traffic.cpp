#include "dear/platform/fabric/traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric {
namespace {

constexpr int kNobody = -1;

}  // namespace

Traffic::Traffic(const Topology& topology) : topology_(topology), flows_(topology.capacities()) {}

CollectiveId Traffic::open(std::shared_ptr<const Rounds> rounds, double bytes, std::vector<int> ranks) {
  const int members = rounds->ranks();
  if (!(bytes >= 0) || std::isinf(bytes))
    throw ConfigError(fmt::format("a collective of {} bytes cannot be", bytes));
  if (ranks.empty()) {
    for (int rank = 0; rank < members; ++rank) ranks.push_back(rank);
  }
  if (static_cast<int>(ranks.size()) != members)
    throw ConfigError(
        fmt::format("{} ranks cannot be the {} members of a collective", ranks.size(), members));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= topology_.ranks())
      throw ConfigError(fmt::format("there is no rank {} on a network of {}", rank, topology_.ranks()));
  }
  if (free_.empty()) {
    free_.push_back(static_cast<CollectiveId>(collectives_.size()));
    collectives_.emplace_back();
  }
  const CollectiveId id = free_.back();
  free_.pop_back();
  Collective& collective = collectives_[id];
  collective = {.rounds = std::move(rounds), .bytes = bytes, .members = {}, .left = members};
  for (const int rank : ranks) collective.members.push_back({.rank = rank});
  return id;
}

void Traffic::enter(CollectiveId id, int member, double seconds) {
  if (id >= collectives_.size() || collectives_[id].rounds == nullptr)
    throw ScheduleError(fmt::format("there is no collective {} to be entered: open it", id));
  std::vector<Member>& members = collectives_[id].members;
  if (member < 0 || member >= static_cast<int>(members.size()))
    throw ScheduleError(
        fmt::format("collective {} has {} members, not a member {}", id, members.size(), member));
  bool& entered = members[static_cast<std::size_t>(member)].entered;
  if (entered) throw ScheduleError(fmt::format("member {} is in collective {} already", member, id));
  if (!(seconds >= now_seconds()) || std::isinf(seconds))
    throw ScheduleError(fmt::format("member {} cannot enter collective {} at {} s, now is {} s", member, id,
                                    seconds, now_seconds()));
  entered = true;
  add_event(seconds, {.collective = id, .from = kNobody, .to = member});
}

std::optional<double> Traffic::next_seconds() {
  std::optional<double> next = flows_.next_seconds();
  if (!events_.empty() && (!next || events_.top().seconds < *next))
    next = std::max(now_seconds(), events_.top().seconds);
  return next;
}

std::span<const Completion> Traffic::advance(double until_seconds) {
  if (until_seconds < now_seconds())
    throw ScheduleError(fmt::format("it is {} s, and cannot be {} s again", now_seconds(), until_seconds));
  completions_.clear();
  std::optional<double> next = next_seconds();
  while (completions_.empty() && next && same_instant_or_before(*next, until_seconds)) {
    happen(std::min(*next, until_seconds));
    next = next_seconds();
  }
  if (completions_.empty() && until_seconds < std::numeric_limits<double>::infinity())
    flows_.advance(until_seconds);
  return completions_;
}

// All of one instant; new rates come once, when somebody asks for the next one.
void Traffic::happen(double seconds) {
  for (const FlowId flow : flows_.advance(seconds)) end_message(by_flow_[flow]);
  while (!events_.empty() && same_instant_or_before(events_.top().seconds, seconds)) {
    const Sent sent = events_.top().sent;
    events_.pop();
    if (sent.from == kNobody) {
      begin_round(sent.collective, sent.to);
      continue;
    }
    const std::vector<Member>& members = collectives_[sent.collective].members;
    topology_.route(members[static_cast<std::size_t>(sent.from)].rank,
                    members[static_cast<std::size_t>(sent.to)].rank, route_);
    const FlowId flow = flows_.start(route_.links, sent.bytes);
    if (flow >= by_flow_.size()) by_flow_.resize(flow + 1);
    by_flow_[flow] = sent;
  }
}

// Whoever is the second to come begins a message: the other has begun this round, and cannot be past it.
void Traffic::begin_round(CollectiveId id, int member) {
  Collective& collective = collectives_[id];
  Member& self = collective.members[static_cast<std::size_t>(member)];
  while (++self.round < collective.rounds->rounds()) {
    collective.rounds->exchange(self.round, member, exchange_);
    self.open = static_cast<int>(exchange_.sends.size() + exchange_.receives.size());
    if (self.open == 0) continue;
    const auto is_there = [&](int peer) {
      return collective.members[static_cast<std::size_t>(peer)].round == self.round;
    };
    for (const Message& message : exchange_.sends) {
      if (!is_there(message.peer)) continue;
      begin_message(
          {.collective = id, .from = member, .to = message.peer, .bytes = message.share * collective.bytes});
    }
    for (const Message& message : exchange_.receives) {
      if (!is_there(message.peer) || message.peer == member) continue;
      begin_message(
          {.collective = id, .from = message.peer, .to = member, .bytes = message.share * collective.bytes});
    }
    return;
  }
  const bool last = --collective.left == 0;
  completions_.push_back({.collective = id, .member = member, .seconds = now_seconds(), .last = last});
  if (last) {
    collective.rounds = nullptr;
    free_.push_back(id);
  }
}

void Traffic::begin_message(const Sent& sent) {
  ++messages_;
  const std::vector<Member>& members = collectives_[sent.collective].members;
  add_event(now_seconds() + topology_.latency_seconds(members[static_cast<std::size_t>(sent.from)].rank,
                                                      members[static_cast<std::size_t>(sent.to)].rank),
            sent);
}

void Traffic::end_message(const Sent& sent) {
  end_one_of(sent.collective, sent.from);
  end_one_of(sent.collective, sent.to);
}

void Traffic::end_one_of(CollectiveId id, int member) {
  if (--collectives_[id].members[static_cast<std::size_t>(member)].open == 0) begin_round(id, member);
}

}  // namespace dear::fabric
