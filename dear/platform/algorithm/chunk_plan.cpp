#include "dear/platform/algorithm/chunk_plan.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::algorithm {
namespace {

void validate_shape(const ChunkPlan& plan) {
  validate(plan.grid);
  if (plan.collective != Collective::reduce_scatter && plan.collective != Collective::all_gather &&
      plan.collective != Collective::all_reduce) {
    throw ConfigError(
        fmt::format("no chunk plan is for a {}: ask for a reduce-scatter, an all-gather or an "
                    "all-reduce",
                    name_of(plan.collective)));
  }
  if (plan.algorithms.size() != plan.grid.sizes.size() || plan.lanes.size() != plan.grid.sizes.size()) {
    throw ConfigError(
        fmt::format("a chunk plan for {} dimensions has {} algorithms and {} lanes: give one for "
                    "each dimension",
                    plan.grid.dimensions(), plan.algorithms.size(), plan.lanes.size()));
  }
  for (int dimension = 0; dimension < plan.grid.dimensions(); ++dimension) {
    const int lane = plan.lanes[index_of(dimension)];
    if (lane < 0 || index_of(lane) >= plan.service.size()) {
      throw ConfigError(fmt::format("dimension {} of a chunk plan is on lane {} of {}", dimension, lane,
                                    plan.service.size()));
    }
    line_program(plan.algorithms[index_of(dimension)], Collective::all_gather, 1);
  }
  if (plan.chunk_bytes.empty() || plan.chunk_bytes.size() != plan.orders.size()) {
    throw ConfigError(
        fmt::format("a chunk plan has {} chunks and {} orders: give one for each of at least one",
                    plan.chunk_bytes.size(), plan.orders.size()));
  }
  for (int chunk = 0; chunk < plan.chunks(); ++chunk) {
    if (plan.chunk_bytes[index_of(chunk)] < 0) {
      throw ConfigError(
          fmt::format("chunk {} of a plan has {} bytes", chunk, plan.chunk_bytes[index_of(chunk)]));
    }
    try {
      validate_order(plan.grid, plan.orders[index_of(chunk)]);
    } catch (const ConfigError& error) {
      throw ScheduleError(fmt::format("chunk {}: {}", chunk, error.what()));
    }
  }
}

}  // namespace

std::int64_t ChunkPlan::bytes() const {
  return std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), std::int64_t{0});
}

int ChunkPlan::steps() const {
  const auto dimensions = orders.empty() ? 0 : static_cast<int>(orders.front().size());
  return collective == Collective::all_reduce ? 2 * dimensions : dimensions;
}

Collective ChunkPlan::collective_of(ChunkPhase phase) const {
  if (collective != Collective::all_reduce) return collective;
  return phase.step < steps() / 2 ? Collective::reduce_scatter : Collective::all_gather;
}

std::size_t ChunkPlan::place_of(ChunkPhase phase) const {
  const bool gathers = collective_of(phase) == Collective::all_gather;
  return index_of(gathers ? steps() - 1 - phase.step : phase.step);
}

int ChunkPlan::dimension_of(ChunkPhase phase) const { return orders[index_of(phase.chunk)][place_of(phase)]; }

std::vector<int> ChunkPlan::before(ChunkPhase phase) const {
  const std::vector<int>& order = orders[index_of(phase.chunk)];
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(place_of(phase))};
}

double ChunkPlan::bytes_of(ChunkPhase phase) const {
  auto bytes = static_cast<double>(chunk_bytes[index_of(phase.chunk)]);
  for (std::size_t place = 0; place < place_of(phase); ++place) {
    bytes /= grid.sizes[index_of(orders[index_of(phase.chunk)][place])];
  }
  return bytes;
}

void validate(const ChunkPlan& plan) {
  validate_shape(plan);
  const int steps = plan.steps();
  std::vector<int> served(index_of(plan.chunks()) * index_of(steps), 0);
  for (int lane = 0; index_of(lane) < plan.service.size(); ++lane) {
    for (const ChunkPhase& phase : plan.service[index_of(lane)]) {
      if (phase.chunk < 0 || phase.chunk >= plan.chunks() || phase.step < 0 || phase.step >= steps) {
        throw ScheduleError(fmt::format("lane {} serves step {} of chunk {}; there are {} steps of {} chunks",
                                        lane, phase.step, phase.chunk, steps, plan.chunks()));
      }
      if (plan.lanes[index_of(plan.dimension_of(phase))] != lane) {
        throw ScheduleError(fmt::format(
            "lane {} serves step {} of chunk {}, which is for dimension {} on lane {}", lane, phase.step,
            phase.chunk, plan.dimension_of(phase), plan.lanes[index_of(plan.dimension_of(phase))]));
      }
      ++served[index_of(phase.chunk) * index_of(steps) + index_of(phase.step)];
    }
  }
  for (std::size_t i = 0; i < served.size(); ++i) {
    if (served[i] != 1) {
      throw ScheduleError(fmt::format("step {} of chunk {} is served {} times, not once", i % index_of(steps),
                                      i / index_of(steps), served[i]));
    }
  }
  in_order(plan);
}

std::uint64_t digest(const ChunkPlan& plan) {
  Digest digest;
  const auto add = [&](const std::vector<int>& numbers) {
    digest.add(numbers.size());
    for (const int number : numbers) digest.add(static_cast<std::uint64_t>(number));
  };
  digest.add(static_cast<std::uint64_t>(plan.collective));
  add(plan.grid.sizes);
  add(plan.lanes);
  for (const std::string& algorithm : plan.algorithms) digest.add(algorithm);
  digest.add(plan.chunk_bytes.size());
  for (const std::int64_t bytes : plan.chunk_bytes) digest.add(static_cast<std::uint64_t>(bytes));
  for (const std::vector<int>& order : plan.orders) add(order);
  for (const std::vector<ChunkPhase>& lane : plan.service) {
    digest.add(lane.size());
    for (const ChunkPhase& phase : lane) {
      digest.add(static_cast<std::uint64_t>(phase.chunk)).add(static_cast<std::uint64_t>(phase.step));
    }
  }
  return digest.value();
}

std::vector<ChunkPhase> in_order(const ChunkPlan& plan) {
  std::vector<int> done(index_of(plan.chunks()), 0);  // steps, by chunk
  std::vector<std::size_t> next(plan.service.size(), 0);
  std::size_t all = 0;
  for (const auto& lane : plan.service) all += lane.size();
  std::vector<ChunkPhase> order;
  while (order.size() < all) {
    int chosen = -1;
    double share = 2;
    for (int lane = 0; index_of(lane) < plan.service.size(); ++lane) {
      const std::vector<ChunkPhase>& phases = plan.service[index_of(lane)];
      if (next[index_of(lane)] == phases.size()) continue;
      const ChunkPhase& phase = phases[next[index_of(lane)]];
      const double served = static_cast<double>(next[index_of(lane)]) / static_cast<double>(phases.size());
      if (done[index_of(phase.chunk)] == phase.step && served < share) {
        chosen = lane;
        share = served;
      }
    }
    if (chosen < 0) {
      throw ScheduleError(
          fmt::format("{} phases of a chunk plan wait for each other in a circle: {} of {} lanes "
                      "serve a phase before the one that its chunk needs first",
                      all - order.size(), plan.service.size(), plan.service.size()));
    }
    const ChunkPhase phase = plan.service[index_of(chosen)][next[index_of(chosen)]++];
    ++done[index_of(phase.chunk)];
    order.push_back(phase);
  }
  return order;
}

Program program_of(const ChunkPlan& plan) {
  validate(plan);
  const int ranks = plan.grid.ranks();
  const int chunks = plan.chunks();
  Program program = empty_program(
      fmt::format("{} {} over {}", plan.name, name_of(plan.collective), fmt::join(plan.grid.sizes, "x")),
      plan.collective, ranks, ranks * chunks);
  for (const ChunkPhase& phase : in_order(plan)) {
    const int dimension = plan.dimension_of(phase);
    add_line_rounds(plan.grid,
                    {.dimension = dimension,
                     .before = plan.before(phase),
                     .collective = plan.collective_of(phase),
                     .algorithm = plan.algorithms[index_of(dimension)]},
                    chunks, phase.chunk, static_cast<int>(program.rounds.size()), program);
  }
  return program;
}

}  // namespace dear::algorithm
