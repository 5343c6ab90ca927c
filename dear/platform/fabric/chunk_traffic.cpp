#include "dear/platform/fabric/chunk_traffic.h"

#include <map>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::fabric {
namespace {

using algorithm::ChunkPhase;

// Messages of a line, and the part of its bytes that a member sends on average.
struct LineLoad {
  std::uint64_t messages = 0;
  double part = 0;
};

// Messages of rings and direct exchanges are too many to be counted one by one, and their numbers are known.
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

}  // namespace

ChunkPhases::ChunkPhases(algorithm::ChunkPlan plan) : plan_(std::move(plan)) {
  validate(plan_);
  struct Line {
    std::shared_ptr<const Rounds> rounds;
    LineLoad load;
  };
  std::map<std::pair<int, Collective>, Line> lines;  // by dimension
  for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
    for (int step = 0; step < plan_.steps(); ++step) {
      const ChunkPhase phase{.chunk = chunk, .step = step};
      const int dimension = plan_.dimension_of(phase);
      const std::string& algorithm = plan_.algorithms[index_of(dimension)];
      const Collective collective = plan_.collective_of(phase);
      Line& line = lines[{dimension, collective}];
      if (!line.rounds) {
        line.rounds = line_rounds(algorithm, collective, plan_.grid.sizes[index_of(dimension)]);
        line.load = load_of(*line.rounds, algorithm);
      }
      all_.push_back({.of = phase,
                      .lane = plan_.lanes[index_of(dimension)],
                      .dimension = dimension,
                      .bytes = plan_.bytes_of(phase),
                      .rounds = line.rounds,
                      .messages = line.load.messages,
                      .part = line.load.part});
    }
  }
}

std::size_t ChunkPhases::number(ChunkPhase phase) const {
  return index_of(phase.chunk) * index_of(plan_.steps()) + index_of(phase.step);
}

std::uint64_t ChunkPhases::messages() const {
  std::uint64_t messages = 0;
  for (const Phase& phase : all_)
    messages += phase.messages * index_of(plan_.grid.ranks() / phase.rounds->ranks());
  return messages;
}

std::vector<double> ChunkPhases::sent_bytes() const {
  std::vector<double> bytes(plan_.grid.sizes.size(), 0);
  for (const Phase& phase : all_) bytes[index_of(phase.dimension)] += phase.bytes * phase.part;
  return bytes;
}

ChunkTraffic::ChunkTraffic(Traffic& traffic, std::shared_ptr<const ChunkPhases> phases,
                           std::vector<int> ranks)
    : traffic_(traffic),
      phases_(std::move(phases)),
      ranks_(std::move(ranks)),
      ranks_left_(plan().grid.ranks()),
      left_(index_of(ranks_left_), phases_->size()),
      done_(index_of(ranks_left_) * index_of(plan().chunks()), 0),
      turns_(index_of(ranks_left_) * plan().service.size()) {
  if (!ranks_.empty() && ranks_.size() != left_.size())
    throw ConfigError(
        fmt::format("{} ranks cannot be the {} of a chunk plan", ranks_.size(), plan().grid.ranks()));
}

void ChunkTraffic::enter(int rank, double seconds) {
  if (phases_->size() == 0) --ranks_left_;
  for (int lane = 0; index_of(lane) < plan().service.size(); ++lane) start(rank, lane, seconds);
}

bool ChunkTraffic::owns(const Completion& end) const {
  return end.collective < opened_.size() && opened_[end.collective].first >= 0;
}

void ChunkTraffic::note(const Completion& end) {
  Open& open = opened_[end.collective];
  const ChunkPhases::Phase& phase = (*phases_)[open.phase];
  const int rank = open.first + end.member * plan().grid.stride(phase.dimension);
  ended_.emplace_back(rank, open.phase);
  Turn& turn = this->turn(rank, phase.lane);
  if (rank == 0)
    spans_.push_back({.lane = phase.lane,
                      .phase = phase.of,
                      .begin_seconds = turn.begin_seconds,
                      .end_seconds = end.seconds});
  turn.busy = false;
  ++turn.next;
  done(rank, phase.of.chunk) = phase.of.step + 1;
  if (!end.last) return;
  open_.erase(open.phase * left_.size() + index_of(open.first));
  open.first = -1;
}

std::span<const int> ChunkTraffic::go_on() {
  through_.clear();
  const double now = traffic_.now_seconds();
  for (const auto& [rank, number] : ended_) {
    const ChunkPhases::Phase& phase = (*phases_)[number];
    start(rank, phase.lane, now);
    if (phase.of.step + 1 < plan().steps()) start(rank, (*phases_)[number + 1].lane, now);
    if (--left_[index_of(rank)] > 0) continue;
    --ranks_left_;
    through_.push_back(rank);
  }
  ended_.clear();
  return through_;
}

ChunkTraffic::Turn& ChunkTraffic::turn(int rank, int lane) {
  return turns_[index_of(rank) * plan().service.size() + index_of(lane)];
}

int& ChunkTraffic::done(int rank, int chunk) {
  return done_[index_of(rank) * index_of(plan().chunks()) + index_of(chunk)];
}

void ChunkTraffic::start(int rank, int lane, double seconds) {
  Turn& turn = this->turn(rank, lane);
  const std::vector<ChunkPhase>& service = plan().service[index_of(lane)];
  if (turn.busy || turn.next == service.size()) return;
  const ChunkPhase phase = service[turn.next];
  if (done(rank, phase.chunk) != phase.step) return;
  turn.busy = true;
  turn.begin_seconds = seconds;
  const std::size_t number = phases_->number(phase);
  const int dimension = (*phases_)[number].dimension;
  const int member = plan().grid.coordinate(rank, dimension);
  traffic_.enter(open(number, rank - member * plan().grid.stride(dimension)), member, seconds);
}

CollectiveId ChunkTraffic::open(std::size_t number, int first) {
  const auto [place, is_first] = open_.try_emplace(number * left_.size() + index_of(first), CollectiveId{});
  if (!is_first) return place->second;
  const ChunkPhases::Phase& phase = (*phases_)[number];
  std::vector<int> line = plan().grid.line(first, phase.dimension);
  if (!ranks_.empty()) {
    for (int& rank : line) rank = ranks_[index_of(rank)];
  }
  const CollectiveId id = traffic_.open(phase.rounds, phase.bytes, std::move(line));
  if (id >= opened_.size()) opened_.resize(id + 1);
  opened_[id] = {.phase = number, .first = first};
  return place->second = id;
}

}  // namespace dear::fabric
