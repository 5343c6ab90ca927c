#include "dear/platform/cost/chunk_times.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::cost {
namespace {

// The share that a member sends of all that its line reduces or gathers.
double sent_part(int members) { return static_cast<double>(members - 1) / members; }

struct LineShape {
  std::string_view algorithm;
  double messages = 0;  // one after another
};

LineShape line_in(const Dimension& dimension) {
  const int members = dimension.size;
  if (dimension.wiring == Wiring::full_mesh) return {.algorithm = "direct", .messages = 1};
  const bool doubles =
      dimension.wiring == Wiring::switched && std::has_single_bit(static_cast<unsigned>(members));
  if (!doubles) return {.algorithm = "ring", .messages = members - 1.0};
  return {.algorithm = "halving-doubling", .messages = std::bit_width(static_cast<unsigned>(members)) - 1.0};
}

}  // namespace

int ChunkNetwork::lane_count() const {
  return lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()) + 1;
}

double ChunkNetwork::phase_seconds(int dimension, double bytes) const {
  const LineTime& line = lines[index_of(dimension)];
  return line.start_up_seconds + line.seconds_per_byte * bytes;
}

double ChunkNetwork::bytes_per_second(int dimension) const {
  const double seconds = lines[index_of(dimension)].seconds_per_byte;
  return seconds > 0 ? sent_part(grid.sizes[index_of(dimension)]) / seconds
                     : std::numeric_limits<double>::infinity();
}

ChunkNetwork chunk_network(const Cluster& cluster) {
  validate(cluster);
  ChunkNetwork network{.grid = {},
                       .algorithms = {},
                       .lanes = lanes_of(cluster),
                       .lines = {},
                       .launch_seconds = cluster.software.launch_seconds};
  for (const Dimension& dimension : cluster.dimensions) {
    const LineShape line = line_in(dimension);
    const double rate = bytes_per_second_of_rank(cluster, network.grid.dimensions());
    const bool one = dimension.size == 1;
    network.grid.sizes.push_back(dimension.size);
    network.algorithms.emplace_back(line.algorithm);
    network.lines.push_back({.start_up_seconds = one ? 0 : line.messages * dimension.link.alpha_seconds,
                             .seconds_per_byte = one ? 0 : sent_part(dimension.size) / rate});
  }
  return network;
}

double launch_beyond_start_ups(const ChunkNetwork& network, Collective collective) {
  if (network.grid.ranks() == 1) return 0;
  double start_ups = 0;
  for (const LineTime& line : network.lines) start_ups += line.start_up_seconds;
  if (collective == Collective::all_reduce) start_ups *= 2;
  return std::max(0.0, network.launch_seconds - start_ups);
}

double ideal_seconds(const ChunkNetwork& network, Collective collective, std::int64_t bytes) {
  const bool both = collective == Collective::all_reduce;
  if (!both && collective != Collective::reduce_scatter && collective != Collective::all_gather) {
    throw ConfigError(
        fmt::format("a {} has no time in chunks: ask for a reduce-scatter, an all-gather or an "
                    "all-reduce",
                    name_of(collective)));
  }
  if (bytes < 0) throw ConfigError(fmt::format("a vector of {} bytes cannot be", bytes));
  std::vector<double> rates(index_of(network.lane_count()), 0);
  for (int dimension = 0; dimension < network.grid.dimensions(); ++dimension) {
    if (network.grid.sizes[index_of(dimension)] == 1) continue;
    double& rate = rates[index_of(network.lanes[index_of(dimension)])];
    rate = std::max(rate, network.bytes_per_second(dimension));
  }
  double rate = 0;
  for (const double of_lane : rates) rate += of_lane;
  const double sent = static_cast<double>(bytes) * sent_part(network.grid.ranks()) * (both ? 2 : 1);
  return sent > 0 ? sent / rate : 0;
}

ChunkTimes play(const algorithm::ChunkPlan& plan, const ChunkNetwork& network) {
  if (plan.grid != network.grid) {
    throw ConfigError(fmt::format("a plan for a grid of {} ranks does not fit a network of {}",
                                  fmt::join(plan.grid.sizes, "x"), fmt::join(network.grid.sizes, "x")));
  }
  validate(plan);
  ChunkTimes times{.busy_seconds = std::vector<double>(plan.grid.sizes.size(), 0),
                   .sent_bytes = std::vector<double>(plan.grid.sizes.size(), 0),
                   .spans = {}};
  std::vector<double> chunk_free(plan.chunk_bytes.size(), 0);
  std::vector<double> lane_free(plan.service.size(), 0);
  for (const algorithm::ChunkPhase& phase : in_order(plan)) {
    const int dimension = plan.dimension_of(phase);
    const double bytes = plan.bytes_of(phase);
    double& chunk = chunk_free[index_of(phase.chunk)];
    double& lane = lane_free[index_of(plan.lanes[index_of(dimension)])];
    const double begin = std::max(chunk, lane);
    const double end = begin + network.phase_seconds(dimension, bytes);
    times.busy_seconds[index_of(dimension)] += end - begin;
    times.sent_bytes[index_of(dimension)] += bytes * sent_part(plan.grid.sizes[index_of(dimension)]);
    times.spans.push_back(
        {.phase = phase, .dimension = dimension, .begin_seconds = begin, .end_seconds = end});
    times.seconds = std::max(times.seconds, end);
    chunk = lane = end;
  }
  std::stable_sort(times.spans.begin(), times.spans.end(),
                   [](const ChunkSpan& a, const ChunkSpan& b) { return a.end_seconds < b.end_seconds; });
  return times;
}

double utilisation(const algorithm::ChunkPlan& plan, const ChunkTimes& times, const ChunkNetwork& network) {
  return times.seconds > 0 ? ideal_seconds(network, plan.collective, plan.bytes()) / times.seconds : 0;
}

}  // namespace dear::cost
