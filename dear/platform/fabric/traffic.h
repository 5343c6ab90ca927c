#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "dear/platform/fabric/flows.h"
#include "dear/platform/fabric/rounds.h"
#include "dear/platform/fabric/topology.h"

namespace dear::fabric {

using CollectiveId = std::uint32_t;

// A member is through with its part of a collective.
struct Completion {
  CollectiveId collective = 0;
  int member = 0;
  double seconds = 0;
  bool last = false;  // all members are; the id is free again
};

// Collectives under way on one network, those of several jobs and lanes at once, in virtual time.
//
// A member begins its next round when all that it sends and receives in this one is through. A message begins
// when both of its ends have begun its round, takes the latency of its route, then flows (Flows). Where
// messages meet they share links fairly; without a switch that is shared, and with one message at a time for
// each rank, times are those of cost::program_seconds.
//
// One thread. Time never goes backwards: what is to happen in the past is a ScheduleError. The topology must
// outlive this.
class Traffic {
 public:
  explicit Traffic(const Topology& topology);

  // A collective of `bytes` (of the whole vector) that nobody has entered yet. `ranks[i]` is the rank of
  // member i; all in order when empty. ConfigError for negative bytes, and for ranks that are not there or
  // not as many as members.
  CollectiveId open(std::shared_ptr<const Rounds> rounds, double bytes, std::vector<int> ranks = {});
  // A member takes part from `seconds` on, now or later; each once.
  void enter(CollectiveId collective, int member, double seconds);

  [[nodiscard]] double now_seconds() const { return flows_.now_seconds(); }
  // When something happens next; not always a completion. Nothing where everything that was entered is
  // through, or waits for members that were not.
  [[nodiscard]] std::optional<double> next_seconds();
  // Goes on to the first instant at which members are through with a collective, at most to `until_seconds`
  // (and stays at the last event where that is infinite). Returns them; valid until the next call. There may
  // be more at the same instant.
  std::span<const Completion> advance(double until_seconds = std::numeric_limits<double>::infinity());

  [[nodiscard]] std::uint64_t messages() const { return messages_; }  // that began, so far
  [[nodiscard]] std::uint64_t rates_computed() const { return flows_.rates_computed(); }

 private:
  struct Member {
    int rank = 0;
    int round = -1;  // before the first
    int open = 0;    // messages of this round that are not through
    bool entered = false;
  };
  struct Collective {
    std::shared_ptr<const Rounds> rounds;  // nullptr: free
    double bytes = 0;
    std::vector<Member> members;
    int left = 0;  // members that are not through
  };
  struct Sent {
    CollectiveId collective = 0;
    int from = 0;
    int to = 0;
    double bytes = 0;
  };
  // A message whose latency is over, or, from nobody, a member that enters.
  struct Event {
    double seconds = 0;
    std::uint64_t number = 0;
    Sent sent;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.seconds != b.seconds ? a.seconds > b.seconds : a.number > b.number;
    }
  };

  void happen(double seconds);
  void begin_round(CollectiveId id, int member);
  void begin_message(const Sent& sent);
  void end_message(const Sent& sent);
  void end_one_of(CollectiveId id, int member);
  void add_event(double seconds, const Sent& sent) { events_.push({seconds, events_added_++, sent}); }

  const Topology& topology_;
  Flows flows_;
  std::vector<Sent> by_flow_;
  std::vector<Collective> collectives_;
  std::vector<CollectiveId> free_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t events_added_ = 0;
  std::uint64_t messages_ = 0;
  std::vector<Completion> completions_;
  Route route_;
  Exchange exchange_;
};

}  // namespace dear::fabric
