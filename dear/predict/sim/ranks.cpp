#include "dear/predict/sim/ranks.h"

#include <algorithm>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/sim/dilated_clock.h"

namespace dear::sim {
namespace {

struct End {
  double at_seconds;
  std::uint64_t number;  // those of one instant come as they were begun
  Visit visit;
  double interrupted_seconds;  // of the rank's, that at_seconds counts
  bool operator>(const End& other) const {
    return at_seconds != other.at_seconds ? at_seconds > other.at_seconds : number > other.number;
  }
};

class Run {
 public:
  Run(const RanksJob& job, std::int64_t iterations, int ranks, const OwnSeconds& own_seconds,
      NetworkModel& network, const Interference& interference)
      : job_(job),
        own_seconds_(own_seconds),
        network_(network),
        interference_(interference),
        frontiers_(static_cast<std::size_t>(ranks),
                   Frontier(job.graph, {.free = {}, .iterations = iterations})),
        begin_seconds_(job.graph.step_count()),
        computed_until_(static_cast<std::size_t>(ranks)),
        interrupted_until_(static_cast<std::size_t>(ranks)),
        interrupted_seconds_(static_cast<std::size_t>(ranks)) {
    result_.commit_seconds.resize(static_cast<std::size_t>(ranks));
  }

  RanksResult finish(const std::vector<double>& start_seconds) && {
    for (int rank = 0; rank < static_cast<int>(frontiers_.size()); ++rank) {
      released_ = frontier(rank).start();
      begin(rank, start_seconds.empty() ? 0 : start_seconds[static_cast<std::size_t>(rank)]);
    }
    std::vector<Visit> through;
    while (unfinished_ > 0) {
      const bool computing = !ends_.empty();
      const double next_of_network = network_.next_seconds();
      const bool communicating = next_of_network != NetworkModel::kNever;
      own_clock_.dilate(communicating ? interference_.computation : 1, now_);
      network_clock_.dilate(computing ? interference_.communication : 1, now_);
      const double own = computing ? own_clock_.when(ends_.top().at_seconds) : NetworkModel::kNever;
      const double network = communicating ? network_clock_.when(next_of_network) : NetworkModel::kNever;
      if (own == NetworkModel::kNever && network == NetworkModel::kNever)
        throw Error(
            "the simulation waits for a step to end, but none is running: ranks wait for each other "
            "in different collectives");
      now_ = std::max(now_, std::min(own, network));
      if (own <= network) {
        const End end = ends_.top();
        ends_.pop();
        const double more = interrupted_since(end);
        if (more > 0) {
          ends_.push({end.at_seconds + more, end.number, end.visit, end.interrupted_seconds + more});
        } else {
          complete(end.visit);
        }
        continue;
      }
      through.clear();
      network_seconds_ = next_of_network;
      network_.advance(through);
      for (const Visit& visit : through) complete(visit);
    }
    return std::move(result_);
  }

 private:
  Frontier& frontier(int rank) { return frontiers_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] RanksJob::Turns turns_of(StepId step) const {
    return job_.turns.empty() ? RanksJob::Turns::none : job_.turns[step];
  }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // By how much later a step ends than was foreseen, for steps that interrupted it.
  [[nodiscard]] double interrupted_since(const End& end) const {
    const RanksJob::Turns turns = turns_of(end.visit.which.step);
    const bool stands_aside = turns == RanksJob::Turns::takes || turns == RanksJob::Turns::goes_first;
    return stands_aside ? interrupted_seconds_[index(end.visit.rank)] - end.interrupted_seconds : 0;
  }

  // When a step begins that may from `from` on, on the rank's own clock.
  double take_turn(int rank, Instance which, double from, double seconds) {
    const RanksJob::Turns turns = turns_of(which.step);
    if (seconds <= 0 || turns == RanksJob::Turns::none) return from;
    double& until = computed_until_[index(rank)];
    double& interrupted_until = interrupted_until_[index(rank)];
    if (turns == RanksJob::Turns::interrupts) {
      from = std::max(from, interrupted_until);
      interrupted_until = from + seconds;
      interrupted_seconds_[index(rank)] += seconds;
      if (until > from) until += seconds;
      return from;
    }
    from = std::max({from, until, interrupted_until});
    until = from + seconds;
    return from;
  }

  // Begins the steps that `released_` lists.
  void begin(int rank, double now) {
    if (!job_.turns.empty())
      std::stable_partition(released_.begin(), released_.end(),
                            [&](Instance which) { return turns_of(which.step) > RanksJob::Turns::takes; });
    for (const Instance& which : released_) {
      ++unfinished_;
      if (rank == 0) begin_seconds_[which.step] = now;
      if (job_.communicates[which.step]) {
        network_.enter({which, rank}, std::max(network_seconds_, network_clock_.at(now)));
      } else {
        const double seconds = own_seconds_(rank, which);
        const double from = take_turn(rank, which, own_clock_.at(now), seconds);
        if (rank == 0) begin_seconds_[which.step] = std::max(now, own_clock_.when(from));
        ends_.push({from + seconds, begun_++, {which, rank}, interrupted_seconds_[index(rank)]});
      }
    }
  }

  void complete(const Visit& visit) {
    --unfinished_;
    const auto [which, rank] = visit;
    if (rank == 0) result_.spans.push_back({which, begin_seconds_[which.step], now_});
    if (which.step == job_.commit) result_.commit_seconds[static_cast<std::size_t>(rank)].push_back(now_);
    released_.clear();
    frontier(rank).complete(which.step, released_);
    begin(rank, now_);
  }

  const RanksJob& job_;
  const OwnSeconds& own_seconds_;
  NetworkModel& network_;
  const Interference interference_;
  double now_ = 0;
  double network_seconds_ = 0;  // that the network has come to, on its clock
  DilatedClock own_clock_, network_clock_;
  std::vector<Frontier> frontiers_;
  std::vector<double> begin_seconds_;                                // of rank 0
  std::vector<double> computed_until_;                               // by rank, on their own clock
  std::vector<double> interrupted_until_;                            // likewise
  std::vector<double> interrupted_seconds_;                          // by rank, of all steps that interrupted
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // on the ranks' own clock
  std::uint64_t begun_ = 0;
  std::size_t unfinished_ = 0;  // visits under way
  std::vector<Instance> released_;
  RanksResult result_;
};

}  // namespace

RanksResult drive_ranks(const RanksJob& job, std::int64_t iterations, int ranks,
                        const OwnSeconds& own_seconds, NetworkModel& network,
                        const std::vector<double>& start_seconds, const Interference& interference) {
  if (ranks < 1) throw ConfigError(fmt::format("a simulation of {} ranks is none: give at least 1", ranks));
  return Run(job, iterations, ranks, own_seconds, network, interference).finish(start_seconds);
}

RanksResult drive_ranks(const Schedule& schedule, std::int64_t iterations, int ranks,
                        const OwnSeconds& own_seconds, NetworkModel& network,
                        const std::vector<double>& start_seconds, const Interference& interference,
                        const SharedCompute& shared) {
  RanksJob job{.graph = schedule.graph(), .communicates = {}, .commit = schedule.commit()};
  for (const auto& [work, lane] : schedule.steps()) {
    job.communicates.push_back(std::holds_alternative<Communicate>(work));
    if (!shared.codec && !shared.updates) continue;
    const LaneKind kind = schedule.lanes()[lane].kind;
    const bool beside = (kind == LaneKind::codec && !shared.codec) ||
                        (kind == LaneKind::update && !shared.updates) || kind == LaneKind::network;
    job.turns.push_back(beside                     ? RanksJob::Turns::none
                        : kind == LaneKind::update ? RanksJob::Turns::interrupts
                        : kind == LaneKind::codec  ? RanksJob::Turns::goes_first
                                                   : RanksJob::Turns::takes);
  }
  return drive_ranks(job, iterations, ranks, own_seconds, network, start_seconds, interference);
}

}  // namespace dear::sim
