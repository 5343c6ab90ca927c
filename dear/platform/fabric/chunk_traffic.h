#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/fabric/rounds.h"
#include "dear/platform/fabric/traffic.h"

namespace dear::fabric {

// A phase of a chunk on one rank: from its turn on the lane until all that the rank sends and receives in it
// is through.
struct ChunkSpan {
  int lane = 0;
  algorithm::ChunkPhase phase{};
  double begin_seconds = 0;
  double end_seconds = 0;
  friend bool operator==(const ChunkSpan&, const ChunkSpan&) = default;
};

// The phases of a chunk plan as messages along lines, by number: chunk · steps + step.
class ChunkPhases {
 public:
  // A phase as the collective that it is on every line of its dimension.
  struct Phase {
    algorithm::ChunkPhase of;
    int lane = 0;
    int dimension = 0;
    double bytes = 0;
    std::shared_ptr<const Rounds> rounds;
    std::uint64_t messages = 0;
    double part = 0;  // of the bytes, that a member sends on average
  };

  // Throws as validate(plan).
  explicit ChunkPhases(algorithm::ChunkPlan plan);

  [[nodiscard]] const algorithm::ChunkPlan& plan() const { return plan_; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] std::size_t number(algorithm::ChunkPhase phase) const;
  [[nodiscard]] const Phase& operator[](std::size_t number) const { return all_[number]; }
  [[nodiscard]] std::uint64_t messages() const;          // of all ranks
  [[nodiscard]] std::vector<double> sent_bytes() const;  // by dimension, of a rank on average

 private:
  algorithm::ChunkPlan plan_;
  std::vector<Phase> all_;
};

// A chunk plan under way on a Traffic that others use, too. Each phase of each chunk is a collective of its
// own on every line of its dimension. A rank begins a phase when its own phase of that chunk before is
// through, and when its lane is free of what it serves before; ranks wait for each other only through
// messages.
//
// Memory grows with the ranks times lanes and chunks, not with messages. One thread. The traffic outlives
// this.
class ChunkTraffic {
 public:
  // ranks[i] is the rank on the network of the plan's rank i; all in order when empty. Otherwise ConfigError
  // unless they are as many.
  ChunkTraffic(Traffic& traffic, std::shared_ptr<const ChunkPhases> phases, std::vector<int> ranks = {});

  // A rank of the plan takes part from `seconds` on, now or later; each once. Where the plan has no phases it
  // is through at once, and nothing more is said of it.
  void enter(int rank, double seconds);

  // Whether a completion of the traffic is of a phase of this plan.
  [[nodiscard]] bool owns(const Completion& end) const;
  // Notes a completion that this plan owns. go_on() follows when all completions of the instant are noted,
  // those of others as well, because numbers of collectives are free again only then.
  void note(const Completion& end);
  // Begins the phases that may begin now. Returns the ranks that are through with the plan; valid until the
  // next call.
  std::span<const int> go_on();
  [[nodiscard]] bool all_through() const { return ranks_left_ == 0; }

  [[nodiscard]] const std::vector<ChunkSpan>& spans() const { return spans_; }  // of rank 0, as they end

 private:
  // A rank on a lane.
  struct Turn {
    std::size_t next = 0;  // in the lane's service
    bool busy = false;
    double begin_seconds = 0;
  };
  // A phase on one line.
  struct Open {
    std::size_t phase = 0;
    int first = -1;  // rank of the line; -1: none is open
  };

  [[nodiscard]] const algorithm::ChunkPlan& plan() const { return phases_->plan(); }
  Turn& turn(int rank, int lane);
  int& done(int rank, int chunk);
  void start(int rank, int lane, double seconds);
  CollectiveId open(std::size_t number, int first);

  Traffic& traffic_;
  std::shared_ptr<const ChunkPhases> phases_;
  std::vector<int> ranks_;
  int ranks_left_;
  std::vector<std::size_t> left_;                       // phases, by rank
  std::vector<int> done_;                               // steps, by rank and chunk
  std::vector<Turn> turns_;                             // by rank and lane
  std::unordered_map<std::size_t, CollectiveId> open_;  // by phase and first rank of the line
  std::vector<Open> opened_;                            // by CollectiveId
  std::vector<std::pair<int, std::size_t>> ended_;      // ranks with phases, at this instant
  std::vector<int> through_;
  std::vector<ChunkSpan> spans_;
};

}  // namespace dear::fabric
