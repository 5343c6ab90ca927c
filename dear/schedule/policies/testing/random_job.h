#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/builder.h"
#include "dear/workload/layers/workload.h"

// Jobs and schedules for tests that hold for any: made from a seed, the same everywhere.
namespace dear::testing {

// SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2714064.2660195): unlike the standard's distributions, the
// same numbers with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// The first layer has a tensor; later ones may have none, or one tied to an earlier layer's.
inline Workload random_workload(Random& random, std::size_t max_layers) {
  Workload workload{.name = "random", .tensors = {}, .layers = {}, .update_seconds = random.unit() * 2e-3};
  const std::size_t layers = 1 + random.below(max_layers);
  for (std::size_t l = 0; l < layers; ++l) {
    Layer layer{.name = fmt::format("layer{}", l),
                .tensors = {},
                .forward_seconds = random.unit() * 1e-3,
                .backward_seconds = random.unit() * 2e-3};
    if (l > 0 && random.below(5) == 0)
      layer.tensors.push_back(static_cast<TensorId>(random.below(workload.tensors.size())));
    const std::size_t own = l == 0 ? 1 + random.below(2) : random.below(4);
    for (std::size_t t = 0; t < own; ++t) {
      layer.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
      workload.tensors.push_back({.name = fmt::format("{}.t{}", layer.name, t),
                                  .elements = 1 + static_cast<std::int64_t>(random.below(100'000)),
                                  .dtype = random.below(8) == 0 ? DType::f64 : DType::f32});
    }
    workload.layers.push_back(std::move(layer));
  }
  return workload;
}

inline Grouping random_grouping(Random& random, const Workload& workload) {
  switch (random.below(4)) {
    case 0:
      return group(workload, PerLayer{});
    case 1:
      return group(workload, AllInOne{});
    default:
      return group(workload, BySize{.threshold_bytes = 1 + static_cast<std::int64_t>(random.below(1'000'000)),
                                    .first_bytes = std::nullopt});
  }
}

// Copies lanes, steps and edges, to add to them.
inline ScheduleBuilder draft_of(const Schedule& schedule, const Workload& workload,
                                const Grouping& grouping) {
  ScheduleBuilder builder(workload, grouping, schedule.policy());
  for (const Lane& lane : schedule.lanes()) builder.lane(lane.name, lane.kind);
  for (const Step& step : schedule.steps()) builder.add(step.work, step.lane);
  for (const Edge& edge : schedule.edges()) builder.edge(edge.from, edge.to, edge.back);
  return builder;
}

// With `count` edges more, which cross up to two iterations: well-formed still, but like no policy.
inline Schedule with_random_edges(Random& random, const Schedule& schedule, const Workload& workload,
                                  const Grouping& grouping, std::size_t count) {
  ScheduleBuilder builder = draft_of(schedule, workload, grouping);
  const std::vector<StepId> order =
      graph::Precedence(schedule.steps().size(), edges_with_lanes(schedule)).order_within_iteration();
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t from = random.below(order.size()), to = random.below(order.size());
    const auto back = static_cast<std::uint32_t>(random.below(3));
    if (back == 0 && from == to) continue;
    if (back == 0 && from > to) std::swap(from, to);
    builder.edge(order[from], order[to], back);
  }
  return std::move(builder).build();
}

}  // namespace dear::testing
