#include "dear/platform/fabric/flows.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Flows::Flows(const std::vector<double>& capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    if (!(capacities[i] > 0))
      throw ConfigError(
          fmt::format("link {} carries {} bytes a second: it must be more than 0", i, capacities[i]));
    links_[i].capacity = capacities[i];
  }
}

FlowId Flows::start(std::span<const LinkId> links, double bytes) {
  if (free_.empty()) {
    free_.push_back(static_cast<FlowId>(flows_.size()));
    flows_.emplace_back();
  }
  const FlowId id = free_.back();
  free_.pop_back();
  Flow& flow = flows_[id];
  flow.uses.clear();
  flow.bytes = bytes;
  flow.since = now_;
  flow.rate = 0;
  if (bytes > 0) {
    for (const LinkId link : links) {
      if (links_[link].capacity == kInfinity) continue;
      flow.uses.push_back({.link = link, .place = static_cast<std::uint32_t>(links_[link].flows.size())});
      links_[link].flows.push_back(id);
      touched_.push_back(link);
    }
  }
  if (flow.uses.empty()) {
    flow.rate = kInfinity;
    ends_.set(id, now_);
  }
  return id;
}

std::optional<double> Flows::next_seconds() {
  settle();
  if (ends_.empty()) return std::nullopt;
  return std::max(now_, ends_.first_time());
}

std::span<const FlowId> Flows::advance(double seconds) {
  const std::optional<double> next = next_seconds();
  if (seconds < now_ || (next && !same_instant_or_before(seconds, *next)))
    throw ScheduleError(fmt::format("flows cannot go from {} s to {} s: advance to {} s at most", now_,
                                    seconds, next.value_or(kInfinity)));
  now_ = seconds;
  ended_.clear();
  while (!ends_.empty() && same_instant_or_before(ends_.first_time(), now_)) {
    ended_.push_back(ends_.first());
    ends_.pop();
  }
  for (const FlowId flow : ended_) remove(flow);
  return ended_;
}

double Flows::rate(FlowId flow) {
  settle();
  return flows_.at(flow).rate;
}

void Flows::remove(FlowId id) {
  for (const Use& use : flows_[id].uses) {
    std::vector<FlowId>& on_link = links_[use.link].flows;
    const FlowId moved = on_link.back();
    on_link[use.place] = moved;
    on_link.pop_back();
    if (on_link.empty()) continue;
    touched_.push_back(use.link);
    for (Use& other : flows_[moved].uses) {
      if (other.link == use.link) other.place = use.place;
    }
  }
  free_.push_back(id);
}

void Flows::settle() {
  if (touched_.empty()) return;
  ++settlings_;
  for (const LinkId link : touched_) {
    if (links_[link].found == settlings_ || links_[link].flows.empty()) continue;
    gather_component(link);
    share_out();
  }
  touched_.clear();
}

void Flows::gather_component(LinkId start) {
  component_links_.assign(1, start);
  component_flows_.clear();
  links_[start].found = settlings_;
  for (std::size_t i = 0; i < component_links_.size(); ++i) {
    for (const FlowId id : links_[component_links_[i]].flows) {
      Flow& flow = flows_[id];
      if (flow.found == settlings_) continue;
      flow.found = settlings_;
      flow.has_rate = false;
      component_flows_.push_back(id);
      for (const Use& use : flow.uses) {
        if (links_[use.link].found == settlings_) continue;
        links_[use.link].found = settlings_;
        component_links_.push_back(use.link);
      }
    }
  }
}

// Progressive filling. A link's equal share only grows while flows with less are taken off it, so a share
// that is out of date is too small, and comes to the top of the heap in time to be put right.
void Flows::share_out() {
  rates_computed_ += component_flows_.size();
  if (component_flows_.size() == 1) {
    double rate = kInfinity;
    for (const LinkId link : component_links_) rate = std::min(rate, links_[link].capacity);
    set_rate(component_flows_.front(), rate);
    return;
  }
  shares_.clear();
  for (const LinkId id : component_links_) {
    Link& link = links_[id];
    link.left = link.capacity;
    link.open = static_cast<std::uint32_t>(link.flows.size());
    shares_.emplace_back(link.share(), id);
  }
  std::make_heap(shares_.begin(), shares_.end(), std::greater<>{});
  while (!shares_.empty()) {
    std::pop_heap(shares_.begin(), shares_.end(), std::greater<>{});
    const auto [share, id] = shares_.back();
    Link& link = links_[id];
    if (link.open == 0) {
      shares_.pop_back();
      continue;
    }
    if (link.share() > share) {
      shares_.back().first = link.share();
      std::push_heap(shares_.begin(), shares_.end(), std::greater<>{});
      continue;
    }
    shares_.pop_back();
    const double rate = link.share();
    for (const FlowId flow : link.flows) {
      if (flows_[flow].has_rate) continue;
      flows_[flow].has_rate = true;
      set_rate(flow, rate);
      for (const Use& use : flows_[flow].uses) {
        links_[use.link].left = std::max(0.0, links_[use.link].left - rate);
        --links_[use.link].open;
      }
    }
  }
}

// A flow whose rate stays keeps its end to the last bit.
void Flows::set_rate(FlowId id, double rate) {
  Flow& flow = flows_[id];
  if (rate == flow.rate) return;
  flow.bytes = std::max(0.0, flow.bytes - flow.rate * (now_ - flow.since));
  flow.since = now_;
  flow.rate = rate;
  ends_.set(id, now_ + flow.bytes / rate);
}

}  // namespace dear::fabric
