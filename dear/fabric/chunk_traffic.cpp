#include "dear/fabric/chunk_traffic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/fabric/play.h"
#include "dear/fabric/rounds.h"
#include "dear/fabric/topology.h"
#include "dear/fabric/traffic.h"

namespace dear::fabric {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

constexpr double kMostMessages = 2e9;

std::size_t index(int number) { return static_cast<std::size_t>(number); }

// What a phase is on a line, whatever the line.
struct Phase {
  ChunkPhase of;
  int lane = 0;
  int dimension = 0;
  double bytes = 0;
  std::shared_ptr<const Rounds> rounds;
};

// Messages of a line, and the part of its bytes that a member sends on average.
struct LineLoad {
  std::uint64_t messages = 0;
  double part = 0;
};

// Rings and direct exchanges would take long to be counted, and not be worth it.
LineLoad load_of(const Rounds& rounds, std::string_view algorithm) {
  const auto members = static_cast<std::uint64_t>(rounds.ranks());
  if (algorithm != "halving-doubling")
    return {.messages = members * (members - 1), .part = 1 - 1 / static_cast<double>(members)};
  LineLoad load;
  Exchange exchange;
  for (int round = 0; round < rounds.rounds(); ++round) {
    for (int member = 0; member < rounds.ranks(); ++member) {
      rounds.exchange(round, member, exchange);
      load.messages += exchange.sends.size();
      for (const Message& message : exchange.sends) load.part += message.share;
    }
  }
  load.part /= static_cast<double>(members);
  return load;
}

void refuse_more_than_most(std::uint64_t messages, const ChunkPlan& plan) {
  if (static_cast<double>(messages) <= kMostMessages) return;
  throw ConfigError(
      fmt::format("{} messages of a plan of {} chunks on {} ranks are too many: give fewer chunks or ranks",
                  messages, plan.chunks(), plan.grid.ranks()));
}

// A plan's phases by their number, chunk * steps + step.
class Phases {
 public:
  explicit Phases(const ChunkPlan& plan) : plan_(plan) {
    using Key = std::pair<std::string, std::pair<Collective, int>>;
    std::map<Key, std::shared_ptr<const Rounds>> rounds;
    for (int chunk = 0; chunk < plan.chunks(); ++chunk) {
      for (int step = 0; step < plan.steps(); ++step) {
        const ChunkPhase phase{.chunk = chunk, .step = step};
        const int dimension = plan.dimension_of(phase);
        const std::string& algorithm = plan.algorithms[index(dimension)];
        const Collective collective = plan.collective_of(phase);
        const int members = plan.grid.sizes[index(dimension)];
        std::shared_ptr<const Rounds>& found = rounds[{algorithm, {collective, members}}];
        if (!found) {
          found = line_rounds(algorithm, collective, members);
          loads_[found.get()] = load_of(*found, algorithm);
        }
        all_.push_back({.of = phase,
                        .lane = plan.lanes[index(dimension)],
                        .dimension = dimension,
                        .bytes = plan.bytes_of(phase),
                        .rounds = found});
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] std::size_t number(ChunkPhase phase) const {
    return index(phase.chunk) * index(plan_.steps()) + index(phase.step);
  }
  [[nodiscard]] const Phase& operator[](std::size_t number) const { return all_[number]; }
  [[nodiscard]] const LineLoad& load(std::size_t number) const {
    return loads_.at(all_[number].rounds.get());
  }

  // On all lines.
  [[nodiscard]] std::uint64_t messages() const {
    std::uint64_t messages = 0;
    for (std::size_t number = 0; number < size(); ++number) {
      const auto lines = static_cast<std::uint64_t>(plan_.grid.ranks() / all_[number].rounds->ranks());
      messages += load(number).messages * lines;
    }
    return messages;
  }
  [[nodiscard]] std::vector<double> bytes_by_dimension() const {
    std::vector<double> bytes(plan_.grid.sizes.size(), 0);
    for (std::size_t number = 0; number < size(); ++number)
      bytes[index(all_[number].dimension)] += all_[number].bytes * load(number).part;
    return bytes;
  }

 private:
  const ChunkPlan& plan_;
  std::vector<Phase> all_;
  std::map<const Rounds*, LineLoad> loads_;
};

// [Note: ranks in step] Lanes of a cluster share no links (lanes_of). So if ranks begin together, and if
// those that begin a phase together on all lines of its dimension end it together, then by induction all
// ranks always begin and end together: each phase takes what it takes alone, and phases follow each other as
// in the plan. Rings, halving and doubling among a power of two, and direct exchanges are such phases; where
// one turns out not to be, every rank is played by itself. Where each rank has links of its own into the
// dimension, and its switch carries all that they do, lines share nothing with each other either: one of them
// is played, however many there are.
class InStep {
 public:
  InStep(const ChunkPlan& plan, const Cluster& cluster, const Phases& phases)
      : plan_(plan), cluster_(cluster), phases_(phases) {}

  // Nothing where ranks may come out of step.
  [[nodiscard]] std::optional<PlayedChunks> play_from(double enter_seconds) {
    if (!lanes_are_apart()) return std::nullopt;
    std::vector<double> free(plan_.service.size(), enter_seconds);
    std::vector<double> done(index(plan_.chunks()), enter_seconds);
    PlayedChunks played{.seconds = enter_seconds};
    for (const ChunkPhase& of : algorithm::in_order(plan_)) {
      const Phase& phase = phases_[phases_.number(of)];
      const std::optional<double> seconds = phase_seconds(phase);
      if (!seconds) return std::nullopt;
      double& lane = free[index(phase.lane)];
      double& chunk = done[index(of.chunk)];
      const double begin = std::max(lane, chunk);
      lane = chunk = begin + *seconds;
      played.spans.push_back({.lane = phase.lane, .phase = of, .begin_seconds = begin, .end_seconds = chunk});
      played.seconds = std::max(played.seconds, chunk);
    }
    std::stable_sort(played.spans.begin(), played.spans.end(),
                     [](const ChunkSpan& a, const ChunkSpan& b) { return a.end_seconds < b.end_seconds; });
    played.end_seconds.assign(index(plan_.grid.ranks()), played.seconds);
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

  std::optional<double> phase_seconds(const Phase& phase) {
    const auto [place, is_first] = seconds_.try_emplace({phase.dimension, {phase.rounds.get(), phase.bytes}});
    if (!is_first) return place->second;
    const int ranks_of_member = plan_.grid.stride(phase.dimension);
    Dimension alone = cluster_.dimensions[index(phase.dimension)];
    const bool lines_are_apart = alone.oversubscription == 1 && (alone.beside || ranks_of_member == 1);
    const std::uint64_t messages = phases_.load(phases_.number(phase.of)).messages;
    if (lines_are_apart) {
      refuse_more_than_most(messages, plan_);
      alone.beside = false;
      alone.links /= ranks_of_member;
      const Topology line({.name = cluster_.name, .dimensions = {alone}});
      place->second = together({play(phase.rounds, line, phase.bytes).end_seconds});
    } else {
      refuse_more_than_most(messages * index(plan_.grid.ranks() / phase.rounds->ranks()), plan_);
      place->second = all_lines_seconds(phase);
    }
    return place->second;
  }

  [[nodiscard]] std::optional<double> all_lines_seconds(const Phase& phase) {
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
  const Phases& phases_;
  std::optional<Topology> topology_;
  std::map<std::pair<int, std::pair<const Rounds*, double>>, std::optional<double>> seconds_;
};

// Every rank by itself.
class RankByRank {
 public:
  RankByRank(const ChunkPlan& plan, const Cluster& cluster, const Phases& phases)
      : plan_(plan),
        phases_(phases),
        topology_(cluster),
        traffic_(topology_),
        lanes_(plan.service.size()),
        done_(index(plan.grid.ranks()) * index(plan.chunks()), 0),
        turns_(index(plan.grid.ranks()) * lanes_) {}

  PlayedChunks play_from(std::vector<double> enter_seconds) {
    played_ = {.end_seconds = std::move(enter_seconds)};
    for (int rank = 0; rank < plan_.grid.ranks(); ++rank) {
      for (std::size_t lane = 0; lane < lanes_; ++lane) start(rank, lane, played_.end_seconds[index(rank)]);
    }
    for (auto ended = traffic_.advance(); !ended.empty(); ended = traffic_.advance()) {
      through_.clear();
      for (const Completion& end : ended) note(end);
      // Numbers of collectives are free again only now that all ends are noted.
      for (const auto& [rank, number] : through_) go_on(rank, number);
    }
    played_.seconds = *std::max_element(played_.end_seconds.begin(), played_.end_seconds.end());
    played_.messages = traffic_.messages();
    return std::move(played_);
  }

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
    int first = 0;  // rank of the line
  };

  Turn& turn(int rank, std::size_t lane) { return turns_[index(rank) * lanes_ + lane]; }
  int& done(int rank, int chunk) { return done_[index(rank) * index(plan_.chunks()) + index(chunk)]; }

  void start(int rank, std::size_t lane, double seconds) {
    Turn& turn = this->turn(rank, lane);
    const std::vector<ChunkPhase>& service = plan_.service[lane];
    if (turn.busy || turn.next == service.size()) return;
    const ChunkPhase phase = service[turn.next];
    if (done(rank, phase.chunk) != phase.step) return;
    turn.busy = true;
    turn.begin_seconds = seconds;
    const std::size_t number = phases_.number(phase);
    const int dimension = phases_[number].dimension;
    const int member = plan_.grid.coordinate(rank, dimension);
    const int first = rank - member * plan_.grid.stride(dimension);
    const auto [place, is_first] =
        open_.try_emplace(number * index(plan_.grid.ranks()) + index(first), CollectiveId{});
    if (is_first) {
      place->second =
          traffic_.open(phases_[number].rounds, phases_[number].bytes, plan_.grid.line(first, dimension));
      if (place->second >= opened_.size()) opened_.resize(place->second + 1);
      opened_[place->second] = {.phase = number, .first = first};
    }
    traffic_.enter(place->second, member, seconds);
  }

  void note(const Completion& end) {
    const auto [number, first] = opened_[end.collective];
    const Phase& phase = phases_[number];
    const int rank = first + end.member * plan_.grid.stride(phase.dimension);
    if (end.last) open_.erase(number * index(plan_.grid.ranks()) + index(first));
    Turn& turn = this->turn(rank, index(phase.lane));
    if (rank == 0)
      played_.spans.push_back({.lane = phase.lane,
                               .phase = phase.of,
                               .begin_seconds = turn.begin_seconds,
                               .end_seconds = end.seconds});
    turn.busy = false;
    ++turn.next;
    done(rank, phase.of.chunk) = phase.of.step + 1;
    played_.end_seconds[index(rank)] = end.seconds;
    through_.emplace_back(rank, number);
  }

  // With the next phase of the lane, and of the chunk.
  void go_on(int rank, std::size_t number) {
    const double now = traffic_.now_seconds();
    start(rank, index(phases_[number].lane), now);
    if (phases_[number].of.step + 1 < plan_.steps()) start(rank, index(phases_[number + 1].lane), now);
  }

  const ChunkPlan& plan_;
  const Phases& phases_;
  Topology topology_;
  Traffic traffic_;
  std::size_t lanes_;
  std::vector<int> done_;                               // steps, by rank and chunk
  std::vector<Turn> turns_;                             // by rank and lane
  std::unordered_map<std::size_t, CollectiveId> open_;  // by phase and first rank of the line
  std::vector<Open> opened_;                            // by CollectiveId
  std::vector<std::pair<int, std::size_t>> through_;    // ranks with phases, at this instant
  PlayedChunks played_;
};

void validate(const ChunkPlan& plan, const Cluster& cluster, const std::vector<double>& enter_seconds) {
  algorithm::validate(plan);
  dear::validate(cluster);
  std::vector<int> sizes;
  for (const Dimension& dimension : cluster.dimensions) sizes.push_back(dimension.size);
  if (sizes != plan.grid.sizes)
    throw ConfigError(fmt::format("a plan for a grid of {} ranks cannot be played on cluster '{}' of {}",
                                  fmt::join(plan.grid.sizes, "x"), cluster.name, fmt::join(sizes, "x")));
  if (!enter_seconds.empty() && enter_seconds.size() != index(plan.grid.ranks()))
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
  validate(plan, cluster, options.enter_seconds);
  const Phases phases(plan);
  std::vector<double> enter = options.enter_seconds;
  if (enter.empty()) enter.assign(index(plan.grid.ranks()), 0);
  std::optional<PlayedChunks> played;
  if (std::all_of(enter.begin(), enter.end(), [&](double seconds) { return seconds == enter.front(); }))
    played = InStep(plan, cluster, phases).play_from(enter.front());
  if (!played) {
    refuse_more_than_most(phases.messages(), plan);
    played = RankByRank(plan, cluster, phases).play_from(std::move(enter));
  }
  played->bytes = phases.bytes_by_dimension();
  return std::move(*played);
}

std::vector<double> utilisation_of(const PlayedChunks& played, const Cluster& cluster) {
  std::vector<double> utilisation;
  for (int dimension = 0; dimension < static_cast<int>(played.bytes.size()); ++dimension) {
    const double most = played.seconds * bytes_per_second_of_rank(cluster, dimension);
    utilisation.push_back(most > 0 ? played.bytes[index(dimension)] / most : 0);
  }
  return utilisation;
}

}  // namespace dear::fabric
