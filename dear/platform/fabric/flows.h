#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dear/platform/fabric/end_queue.h"
#include "dear/platform/fabric/topology.h"

namespace dear::fabric {

using FlowId = std::uint32_t;

// Times that differ by no more than rounding are one instant.
inline constexpr double kRounding = 1e-12;  // relative
inline bool same_instant_or_before(double time, double instant) {
  return time <= instant + kRounding * instant;
}

// Bytes that flow like water: each flow has one rate on all of its links, and the rates are max-min fair
// (none can grow without that of one as slow or slower shrinking; Bertsekas and Gallager, Data Networks,
// 1992, 6.5.2). They change only when flows start and end. What does so at one instant is handled together,
// and only flows that share links with it, directly or through others, get new rates (as in SimGrid: Casanova
// et al. 2014, doi:10.1016/j.jpdc.2014.06.008).
class Flows {
 public:
  // In bytes per second, by LinkId; positive, or ConfigError. Infinite ones hinder nobody.
  explicit Flows(const std::vector<double>& capacities);

  // At the present instant, over links that are there, none twice. One without bytes, or without a finite
  // link, ends at once. The id is free again when the flow has ended.
  FlowId start(std::span<const LinkId> links, double bytes);

  [[nodiscard]] double now_seconds() const { return now_; }
  // When the next flow ends.
  [[nodiscard]] std::optional<double> next_seconds();
  // Time moves on to `seconds`, neither before now nor after next_seconds(), or it is a ScheduleError. The
  // flows that end then are gone; valid until the next call.
  std::span<const FlowId> advance(double seconds);

  [[nodiscard]] double rate(FlowId flow);  // bytes per second
  // How many rates were computed so far: the work that sharing made.
  [[nodiscard]] std::uint64_t rates_computed() const { return rates_computed_; }

 private:
  struct Use {
    LinkId link = 0;
    std::uint32_t place = 0;  // in the link's flows
  };
  struct Flow {
    std::vector<Use> uses;
    double bytes = 0;  // that were left at `since`
    double since = 0;
    double rate = 0;
    bool has_rate = false;    // in the solution under way
    std::uint64_t found = 0;  // when its component was last gathered
  };
  struct Link {
    std::vector<FlowId> flows;
    double capacity = 0;
    double left = 0;         // in the solution under way: not yet given to flows
    std::uint32_t open = 0;  // likewise: flows without a rate
    std::uint64_t found = 0;
    [[nodiscard]] double share() const { return left / open; }
  };

  void settle();
  void gather_component(LinkId link);
  void share_out();
  void set_rate(FlowId flow, double rate);
  void remove(FlowId flow);

  double now_ = 0;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowId> free_;
  EndQueue ends_;
  std::vector<LinkId> touched_;  // links on which flows started or ended since the rates were right
  std::uint64_t settlings_ = 0;
  std::uint64_t rates_computed_ = 0;
  std::vector<FlowId> ended_;
  // The component under way.
  std::vector<LinkId> component_links_;
  std::vector<FlowId> component_flows_;
  std::vector<std::pair<double, LinkId>> shares_;
};

}  // namespace dear::fabric
