#include "dear/platform/cost/chunk_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cost/chunk_service.h"

namespace dear::cost {
namespace {

using algorithm::ChunkPlan;

constexpr std::int64_t kLeastPieceBytes = 64;  // of a chunk on each rank
// Times that differ by less are equal: the plan that comes first stands.
constexpr double kGain = 1e-9;
// All orders of so many dimensions are looked at: 120 of 5.
constexpr std::size_t kMostPermutedDimensions = 5;
// Loads are even when they differ by less than a phase of such a part of a chunk takes.
constexpr double kEvenPart = 1.0 / 16;

std::vector<int> dimensions_that_count(const algorithm::Grid& grid) {
  std::vector<int> dimensions;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    if (grid.sizes[index_of(dimension)] > 1) dimensions.push_back(dimension);
  }
  return dimensions;
}

int chunks_for(const algorithm::Grid& grid, std::int64_t bytes, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(bytes / (kLeastPieceBytes * grid.ranks()), 1, most));
}

// The seconds that the orders chosen so far put on each lane. A gather takes what its reduce-scatter takes,
// so only the latter is counted.
class Loads {
 public:
  explicit Loads(const ChunkNetwork& network)
      : network_(network), seconds_(index_of(network.lane_count()), 0) {}

  void add(const std::vector<int>& order, double bytes) {
    for (const int dimension : order) {
      of(dimension) += network_.phase_seconds(dimension, bytes);
      bytes /= network_.grid.sizes[index_of(dimension)];
    }
  }
  double& of(int dimension) { return seconds_[index_of(network_.lanes[index_of(dimension)])]; }
  [[nodiscard]] const std::vector<double>& by_lane() const { return seconds_; }

 private:
  const ChunkNetwork& network_;
  std::vector<double> seconds_;
};

// The least load first. Loads that differ by a rounding error are equal, and equal ones keep their order.
void sort_by_load(Loads& loads, std::vector<int>& order) {
  for (auto next = order.begin(); next != order.end(); ++next) {
    const double load = loads.of(*next) / (1 - kGain);
    std::rotate(std::find_if(order.begin(), next, [&](int before) { return loads.of(before) > load; }), next,
                next + 1);
  }
}

// Algorithm 1 of Themis. Dimensions of equal load keep the order that they had in the chunk before, as in the
// simulator of its authors, which sorts one list again and again.
void order_by_load(const ChunkNetwork& network, const std::vector<int>& inside_out, ChunkPlan& plan) {
  Loads loads(network);
  std::vector<int> order = inside_out;
  for (const std::int64_t bytes : plan.chunk_bytes) {
    sort_by_load(loads, order);
    if (!order.empty()) {
      const double threshold = network.phase_seconds(order.front(), static_cast<double>(bytes) * kEvenPart);
      if (loads.of(order.back()) - loads.of(order.front()) < threshold * (1 - kGain)) order = inside_out;
    }
    loads.add(order, static_cast<double>(bytes));
    plan.orders.push_back(order);
  }
}

std::vector<std::vector<int>> orders_to_try(const std::vector<int>& inside_out) {
  std::vector<std::vector<int>> orders;
  std::vector<int> order = inside_out;
  if (order.size() <= kMostPermutedDimensions) {
    do {
      orders.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  for (std::size_t first = 0; first < inside_out.size(); ++first) {
    orders.push_back(order);
    std::rotate(order.begin(), order.begin() + 1, order.end());
  }
  return orders;
}

void order_by_balance(const ChunkNetwork& network, const std::vector<int>& inside_out, ChunkPlan& plan) {
  const std::vector<std::vector<int>> orders = orders_to_try(inside_out);
  const double bytes = static_cast<double>(plan.bytes()) / plan.chunks();
  std::vector<std::vector<double>> added;
  for (const std::vector<int>& order : orders) {
    Loads loads(network);
    loads.add(order, bytes);
    added.push_back(loads.by_lane());
  }
  std::vector<double> load(index_of(network.lane_count()), 0);
  for (int chunk = 0; chunk < plan.chunks(); ++chunk) {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    double least_squares = least;
    for (std::size_t candidate = 0; candidate < orders.size(); ++candidate) {
      double most = 0;
      double squares = 0;
      for (std::size_t lane = 0; lane < load.size(); ++lane) {
        const double seconds = load[lane] + added[candidate][lane];
        most = std::max(most, seconds);
        squares += seconds * seconds;
      }
      const bool equal = most <= least * (1 + kGain) && most >= least * (1 - kGain);
      if (equal ? squares < least_squares * (1 - kGain) : most < least) {
        best = candidate;
        least = most;
        least_squares = squares;
      }
    }
    for (std::size_t lane = 0; lane < load.size(); ++lane) load[lane] += added[best][lane];
    plan.orders.push_back(orders[best]);
  }
}

void order_inside_out(const ChunkNetwork& /*network*/, const std::vector<int>& inside_out, ChunkPlan& plan) {
  plan.orders.assign(plan.chunk_bytes.size(), inside_out);
}

void order_around(const ChunkNetwork& /*network*/, const std::vector<int>& inside_out, ChunkPlan& plan) {
  std::vector<int> order = inside_out;
  for (int chunk = 0; chunk < plan.chunks(); ++chunk) {
    plan.orders.push_back(order);
    if (!order.empty()) std::rotate(order.begin(), order.begin() + 1, order.end());
  }
}

struct Maker {
  ChunkPlanner planner;
  void (*order)(const ChunkNetwork& network, const std::vector<int>& inside_out, ChunkPlan& plan);
  Service service = Service::first_ready;
};

constexpr std::string_view kBest = "themis";

const std::vector<Maker>& makers() {
  static const std::vector<Maker> kMakers{
      {.planner = {"baseline", "every chunk from the innermost dimension to the outermost"},
       .order = order_inside_out},
      {.planner = {"round-robin", "chunk c begins in dimension c modulo D, and goes around"},
       .order = order_around},
      {.planner = {"themis-fifo",
                   "each chunk goes first where the load is least; what is ready first is served "
                   "first (doi:10.1145/3470496.3527382)"},
       .order = order_by_load},
      {.planner = {"themis-scf", "the same orders; the smallest phase that is ready is served first"},
       .order = order_by_load,
       .service = Service::smallest_first},
      {.planner = {"balanced", "each chunk takes the order after which the most loaded dimension has least"},
       .order = order_by_balance,
       .service = Service::smallest_first}};
  return kMakers;
}

PlannedChunks made_by(const Maker& maker, const ChunkNetwork& network, Collective collective,
                      std::int64_t bytes, int chunks,
                      double give_up_seconds = std::numeric_limits<double>::infinity()) {
  ChunkPlan plan{.name = std::string(maker.planner.name),
                 .collective = collective,
                 .grid = network.grid,
                 .algorithms = network.algorithms,
                 .lanes = network.lanes,
                 .chunk_bytes = even_chunks(bytes, chunks),
                 .orders = {},
                 .service = {}};
  maker.order(network, dimensions_that_count(network.grid), plan);
  const double seconds = serve(network, maker.service, plan, give_up_seconds);
  return {.plan = std::move(plan), .seconds = seconds};
}

PlannedChunks best_of_all(const ChunkNetwork& network, Collective collective, std::int64_t bytes, int most) {
  PlannedChunks best;
  best.seconds = std::numeric_limits<double>::infinity();
  const bool one_dimension = dimensions_that_count(network.grid).size() < 2;
  // From one chunk to `most`, doubling.
  std::vector<int> counts{most};
  while (counts.back() > 1) counts.push_back(counts.back() / 2);
  for (auto chunks = counts.rbegin(); chunks != counts.rend(); ++chunks) {
    for (const Maker& maker : makers()) {
      PlannedChunks candidate =
          made_by(maker, network, collective, bytes, *chunks, best.seconds * (1 - kGain));
      if (candidate.seconds < best.seconds) best = std::move(candidate);
      if (one_dimension) return best;
    }
  }
  return best;
}

}  // namespace

std::vector<std::int64_t> even_chunks(std::int64_t bytes, int chunks) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    // Without the overflow of bytes · chunk.
    const std::int64_t rest = bytes % chunks;
    sizes.push_back(bytes / chunks + rest * (chunk + 1) / chunks - rest * chunk / chunks);
  }
  return sizes;
}

const std::vector<ChunkPlanner>& chunk_planners() {
  static const std::vector<ChunkPlanner> kPlanners = [] {
    std::vector<ChunkPlanner> planners;
    for (const Maker& maker : makers()) planners.push_back(maker.planner);
    planners.push_back({kBest, "the fastest of all these, in as many chunks or fewer"});
    return planners;
  }();
  return kPlanners;
}

bool is_chunk_planner(std::string_view name) {
  const auto& planners = chunk_planners();
  return std::any_of(planners.begin(), planners.end(),
                     [&](const ChunkPlanner& planner) { return planner.name == name; });
}

PlannedChunks make_chunk_plan(const ChunkNetwork& network, Collective collective, std::int64_t bytes,
                              const ChunkPlanOptions& options) {
  if (options.chunks < 1 || options.chunks > kMostChunks) {
    throw ConfigError(
        fmt::format("a vector is cut into 1 to {} chunks, not {}", kMostChunks, options.chunks));
  }
  ideal_seconds(network, collective, bytes);  // refuses what no plan is for
  const int chunks = chunks_for(network.grid, bytes, options.chunks);
  if (options.algorithm == kBest) return best_of_all(network, collective, bytes, chunks);
  std::vector<std::string_view> names;
  for (const Maker& maker : makers()) {
    if (maker.planner.name == options.algorithm) return made_by(maker, network, collective, bytes, chunks);
  }
  for (const ChunkPlanner& planner : chunk_planners()) names.push_back(planner.name);
  throw ConfigError(fmt::format("no chunks go by an algorithm '{}'; choose one of {}", options.algorithm,
                                fmt::join(names, ", ")));
}

PlannedChunks make_chunk_plan(const Cluster& cluster, Collective collective, std::int64_t bytes,
                              const ChunkPlanOptions& options) {
  return make_chunk_plan(chunk_network(cluster), collective, bytes, options);
}

}  // namespace dear::cost
