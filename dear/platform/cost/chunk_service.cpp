#include "dear/platform/cost/chunk_service.h"

#include <algorithm>
#include <limits>

#include "dear/base/vocabulary/ids.h"

namespace dear::cost {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

struct Ready {
  double key = 0;  // what is least comes first
  int number = 0;  // likewise, of equal keys
  ChunkPhase phase;
  int dimension = 0;
  double bytes = 0;
};
bool later(const Ready& a, const Ready& b) { return a.key != b.key ? a.key > b.key : a.number > b.number; }

struct Lane {
  std::vector<Ready> ready;  // a heap
  bool busy = false;
  double end_seconds = std::numeric_limits<double>::infinity();
  Ready served;
};

class Serving {
 public:
  Serving(const ChunkNetwork& network, Service service, ChunkPlan& plan, double give_up_seconds)
      : network_(network),
        service_(service),
        plan_(plan),
        give_up_seconds_(give_up_seconds),
        lanes_(index_of(network.lane_count())) {
    plan.service.assign(lanes_.size(), {});
    const int steps = plan.steps();
    halves_at_ = plan.collective == Collective::all_reduce   ? steps / 2
                 : plan.collective == Collective::all_gather ? 0
                                                             : steps;
    steps_ = steps;
  }

  double run() {
    for (int chunk = 0; chunk < plan_.chunks() && steps_ > 0; ++chunk) {
      const ChunkPhase first{.chunk = chunk, .step = 0};
      become_ready(first, plan_.bytes_of(first));
    }
    double now = 0;
    while (true) {
      for (Lane& lane : lanes_) start_next(lane, now);
      double earliest = std::numeric_limits<double>::infinity();
      for (const Lane& lane : lanes_) earliest = std::min(earliest, lane.end_seconds);
      if (earliest == std::numeric_limits<double>::infinity()) return now;
      if (earliest >= give_up_seconds_) return std::numeric_limits<double>::infinity();
      now = earliest;
      for (Lane& lane : lanes_) {
        if (lane.busy && lane.end_seconds <= now) end(lane);
      }
    }
  }

 private:
  [[nodiscard]] int dimension_of(ChunkPhase phase) const {
    const bool gathers = phase.step >= halves_at_;
    return plan_.orders[index_of(phase.chunk)][index_of(gathers ? steps_ - 1 - phase.step : phase.step)];
  }

  void become_ready(ChunkPhase phase, double bytes) {
    const int dimension = dimension_of(phase);
    Lane& lane = lanes_[index_of(network_.lanes[index_of(dimension)])];
    lane.ready.push_back({.key = service_ == Service::smallest_first ? bytes : 0,
                          .number = ready_++,
                          .phase = phase,
                          .dimension = dimension,
                          .bytes = bytes});
    std::push_heap(lane.ready.begin(), lane.ready.end(), later);
  }

  void start_next(Lane& lane, double now) {
    if (lane.busy || lane.ready.empty()) return;
    std::pop_heap(lane.ready.begin(), lane.ready.end(), later);
    lane.served = lane.ready.back();
    lane.ready.pop_back();
    lane.busy = true;
    lane.end_seconds = now + network_.phase_seconds(lane.served.dimension, lane.served.bytes);
    plan_.service[index_of(network_.lanes[index_of(lane.served.dimension)])].push_back(lane.served.phase);
  }

  // A reduce-scatter leaves a part of its bytes to the next; a gather's next one begins with all of them.
  void end(Lane& lane) {
    lane.busy = false;
    lane.end_seconds = std::numeric_limits<double>::infinity();
    const ChunkPhase next{.chunk = lane.served.phase.chunk, .step = lane.served.phase.step + 1};
    if (next.step == steps_) return;
    double bytes = lane.served.bytes;
    if (next.step < halves_at_) {
      bytes /= network_.grid.sizes[index_of(lane.served.dimension)];
    } else if (next.step > halves_at_) {
      bytes *= network_.grid.sizes[index_of(dimension_of(next))];
    }
    become_ready(next, bytes);
  }

  const ChunkNetwork& network_;
  const Service service_;
  ChunkPlan& plan_;
  const double give_up_seconds_;
  std::vector<Lane> lanes_;
  int steps_ = 0;
  int halves_at_ = 0;  // the first step of the all-gather
  int ready_ = 0;
};

}  // namespace

double serve(const ChunkNetwork& network, Service service, ChunkPlan& plan, double give_up_seconds) {
  return Serving(network, service, plan, give_up_seconds).run();
}

}  // namespace dear::cost
