#include "dear/platform/fabric/chunk_play.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/fabric/play.h"
#include "dear/platform/fabric/rounds.h"
#include "dear/platform/fabric/topology.h"
#include "dear/platform/fabric/traffic.h"

namespace dear::fabric {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

constexpr double kMostMessages = 2e9;

void refuse_more_than_most(std::uint64_t messages, const ChunkPlan& plan) {
  if (static_cast<double>(messages) <= kMostMessages) return;
  throw ConfigError(
      fmt::format("{} messages of a plan of {} chunks on {} ranks are too many: give fewer chunks or ranks",
                  messages, plan.chunks(), plan.grid.ranks()));
}

// [Note: ranks in step] Lanes of a cluster share no links (lanes_of). So if ranks begin together, and if
// those that begin a phase together on all lines of its dimension end it together, then by induction all
// ranks always begin and end together: each phase takes what it takes alone, and phases follow each other as
// in the plan. Rings, halving and doubling among a power of two, and direct exchanges are such phases; where
// one turns out not to be, every rank is played by itself. Where each rank has links of its own into the
// dimension, and its switch carries all that they do, lines share nothing with each other either: one of them
// is played, however many there are.
class InStep {
 public:
  InStep(const ChunkPhases& phases, const Cluster& cluster)
      : plan_(phases.plan()), cluster_(cluster), phases_(phases) {}

  // Returns nothing where ranks may come out of step.
  [[nodiscard]] std::optional<PlayedChunks> play_from(double enter_seconds) {
    if (!lanes_are_apart()) return std::nullopt;
    std::vector<double> free(plan_.service.size(), enter_seconds);
    std::vector<double> done(index_of(plan_.chunks()), enter_seconds);
    PlayedChunks played{.seconds = enter_seconds};
    for (const ChunkPhase& of : algorithm::in_order(plan_)) {
      const ChunkPhases::Phase& phase = phases_[phases_.number(of)];
      const std::optional<double> seconds = phase_seconds(phase);
      if (!seconds) return std::nullopt;
      double& lane = free[index_of(phase.lane)];
      double& chunk = done[index_of(of.chunk)];
      const double begin = std::max(lane, chunk);
      lane = chunk = begin + *seconds;
      played.spans.push_back({.lane = phase.lane, .phase = of, .begin_seconds = begin, .end_seconds = chunk});
      played.seconds = std::max(played.seconds, chunk);
    }
    std::stable_sort(played.spans.begin(), played.spans.end(),
                     [](const ChunkSpan& a, const ChunkSpan& b) { return a.end_seconds < b.end_seconds; });
    played.end_seconds.assign(index_of(plan_.grid.ranks()), played.seconds);
    played.messages = phases_.messages();
    return played;
  }

 private:
  [[nodiscard]] bool lanes_are_apart() const {
    const std::vector<int> lanes = lanes_of(cluster_);
    for (std::size_t outer = 0; outer < lanes.size(); ++outer) {
      for (std::size_t inner = 0; inner < outer; ++inner) {
        if (lanes[inner] == lanes[outer] && plan_.lanes[inner] != plan_.lanes[outer]) return false;
      }
    }
    return true;
  }

  std::optional<double> phase_seconds(const ChunkPhases::Phase& phase) {
    const auto [place, is_first] = seconds_.try_emplace({phase.dimension, {phase.rounds.get(), phase.bytes}});
    if (!is_first) return place->second;
    const int ranks_of_member = plan_.grid.stride(phase.dimension);
    Dimension alone = cluster_.dimensions[index_of(phase.dimension)];
    const bool lines_are_apart = alone.oversubscription == 1 && (alone.beside || ranks_of_member == 1);
    if (lines_are_apart) {
      refuse_more_than_most(phase.messages, plan_);
      alone.beside = false;
      alone.links /= ranks_of_member;
      const Topology line({.name = cluster_.name, .dimensions = {alone}});
      place->second = together({play(phase.rounds, line, phase.bytes).end_seconds});
    } else {
      refuse_more_than_most(phase.messages * index_of(plan_.grid.ranks() / phase.rounds->ranks()), plan_);
      place->second = all_lines_seconds(phase);
    }
    return place->second;
  }

  [[nodiscard]] std::optional<double> all_lines_seconds(const ChunkPhases::Phase& phase) {
    if (!topology_) topology_.emplace(cluster_);
    Traffic traffic(*topology_);
    for (int rank = 0; rank < plan_.grid.ranks(); ++rank) {
      if (plan_.grid.coordinate(rank, phase.dimension) != 0) continue;
      const CollectiveId line =
          traffic.open(phase.rounds, phase.bytes, plan_.grid.line(rank, phase.dimension));
      for (int member = 0; member < phase.rounds->ranks(); ++member) traffic.enter(line, member, 0);
    }
    std::vector<double> ends;
    for (auto ended = traffic.advance(); !ended.empty(); ended = traffic.advance()) {
      for (const Completion& end : ended) ends.push_back(end.seconds);
    }
    return together(ends);
  }

  static std::optional<double> together(const std::vector<double>& ends) {
    const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
    if (same_instant_or_before(*last, *first)) return *last;
    return std::nullopt;
  }

  const ChunkPlan& plan_;
  const Cluster& cluster_;
  const ChunkPhases& phases_;
  std::optional<Topology> topology_;
  std::map<std::pair<int, std::pair<const Rounds*, double>>, std::optional<double>> seconds_;
};

// Plays every rank by itself.
PlayedChunks play_rank_by_rank(const std::shared_ptr<const ChunkPhases>& phases, const Cluster& cluster,
                               std::vector<double> enter_seconds) {
  const Topology topology(cluster);
  Traffic traffic(topology);
  ChunkTraffic chunks(traffic, phases);
  PlayedChunks played{.end_seconds = std::move(enter_seconds)};
  for (int rank = 0; rank < topology.ranks(); ++rank) chunks.enter(rank, played.end_seconds[index_of(rank)]);
  for (auto ended = traffic.advance(); !ended.empty(); ended = traffic.advance()) {
    for (const Completion& end : ended) chunks.note(end);
    for (const int rank : chunks.go_on()) played.end_seconds[index_of(rank)] = traffic.now_seconds();
  }
  played.seconds = *std::max_element(played.end_seconds.begin(), played.end_seconds.end());
  played.spans = chunks.spans();
  played.messages = traffic.messages();
  return played;
}

void validate(const ChunkPlan& plan, const Cluster& cluster, const std::vector<double>& enter_seconds) {
  dear::validate(cluster);
  std::vector<int> sizes;
  for (const Dimension& dimension : cluster.dimensions) sizes.push_back(dimension.size);
  if (sizes != plan.grid.sizes)
    throw ConfigError(fmt::format("a plan for a grid of {} ranks cannot be played on cluster '{}' of {}",
                                  fmt::join(plan.grid.sizes, "x"), cluster.name, fmt::join(sizes, "x")));
  if (!enter_seconds.empty() && enter_seconds.size() != index_of(plan.grid.ranks()))
    throw ConfigError(fmt::format("{} times to enter do not fit a plan for {} ranks", enter_seconds.size(),
                                  plan.grid.ranks()));
  for (std::size_t rank = 0; rank < enter_seconds.size(); ++rank) {
    if (!std::isfinite(enter_seconds[rank]) || enter_seconds[rank] < 0)
      throw ConfigError(fmt::format("rank {} cannot enter at {} s: give a finite time, 0 or more", rank,
                                    enter_seconds[rank]));
  }
}

}  // namespace

PlayedChunks play(const ChunkPlan& plan, const Cluster& cluster, const ChunkPlayOptions& options) {
  const auto phases = std::make_shared<const ChunkPhases>(plan);
  validate(plan, cluster, options.enter_seconds);
  std::vector<double> enter = options.enter_seconds;
  if (enter.empty()) enter.assign(index_of(plan.grid.ranks()), 0);
  std::optional<PlayedChunks> played;
  if (std::all_of(enter.begin(), enter.end(), [&](double seconds) { return seconds == enter.front(); }))
    played = InStep(*phases, cluster).play_from(enter.front());
  if (!played) {
    refuse_more_than_most(phases->messages(), plan);
    played = play_rank_by_rank(phases, cluster, std::move(enter));
  }
  played->bytes = phases->sent_bytes();
  return std::move(*played);
}

}  // namespace dear::fabric
