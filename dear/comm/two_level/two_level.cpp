#include "dear/comm/two_level/two_level.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/platform/cost/chunk_planner.h"

namespace dear::backends {
namespace {

// A typical network between hosts, from which the algorithms across hosts are chosen.
constexpr Link kLink{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 1e-9};
// And typical memory, for the one thing that matters: it is quicker.
constexpr Link kMemory{.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-10};

// Chunks let the ranks of a host add up one while another is on its way between hosts.
constexpr std::int64_t kChunkBytes = 4 << 20;
constexpr int kMostPieces = 4;

cost::LineTime line_time(const Link& link, int members) {
  return {.start_up_seconds = link.alpha_seconds * (members - 1),
          .seconds_per_byte = link.beta_seconds_per_byte * (members - 1) / members};
}

// Every chunk goes inside first: nothing is known of the network across, but that it is slower.
grid::ChunkPlanner inside_first(const algorithm::Grid& grid) {
  const cost::ChunkNetwork network{
      .grid = grid,
      .algorithms = {"ring", "ring"},
      .lanes = {0, 1},
      .lines = {line_time(kMemory, grid.sizes[0]), line_time(kLink, grid.sizes[1])}};
  return [network](Collective collective, std::int64_t bytes) {
    const auto chunks = static_cast<int>(std::clamp<std::int64_t>(bytes / kChunkBytes, 1, kMostPieces));
    return cost::make_chunk_plan(network, collective, bytes, {.algorithm = "baseline", .chunks = chunks})
        .plan;
  };
}

}  // namespace

std::optional<TwoLevelShape> two_level_shape(const std::vector<int>& host_of_rank) {
  const auto ranks = static_cast<int>(host_of_rank.size());
  const auto first = static_cast<int>(
      std::count(host_of_rank.begin(), host_of_rank.end(), host_of_rank.empty() ? 0 : host_of_rank[0]));
  if (first < 2 || ranks % first != 0 || ranks == first) {
    return std::nullopt;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const int of_first_there = host_of_rank[static_cast<std::size_t>(rank / first * first)];
    const bool begins = rank % first == 0 && rank > 0;
    if (host_of_rank[static_cast<std::size_t>(rank)] != of_first_there ||
        (begins && std::count(host_of_rank.begin(), host_of_rank.begin() + rank, of_first_there) > 0)) {
      return std::nullopt;
    }
  }
  return TwoLevelShape{.hosts = ranks / first, .ranks_per_host = first};
}

std::unique_ptr<Backend> make_two_level(std::unique_ptr<SharedMemory> host,
                                        std::unique_ptr<channels::Channels> channels,
                                        const TwoLevelOptions& options) {
  const TwoLevelShape& shape = options.shape;
  const int rank = channels->rank();
  if (channels->size() != shape.hosts * shape.ranks_per_host || host->size() != shape.ranks_per_host ||
      host->rank() != rank % shape.ranks_per_host) {
    throw ConfigError(
        fmt::format("rank {} of {} is rank {} of {} on its host: that is no place in a grid of {} hosts with "
                    "{} ranks each",
                    rank, channels->size(), host->rank(), host->size(), shape.hosts, shape.ranks_per_host));
  }
  const algorithm::Grid grid{{shape.ranks_per_host, shape.hosts}};
  std::vector<int> all(static_cast<std::size_t>(grid.ranks()));
  std::iota(all.begin(), all.end(), 0);
  const auto shared = std::make_shared<channels::SharedChannels>(std::move(channels));
  grid::GridParts parts{
      .whole = message_programs::make_program_backend(shared, std::move(all), 0, {.link = kLink}),
      .lines = {}};
  parts.direct = grid::DirectDimension{.dimension = 0,
                                       .part_of = [memory = host.get()](const Buffer& buffer, int member) {
                                         return memory->part_of(buffer, member);
                                       }};
  parts.lines.push_back(std::move(host));
  parts.lines.push_back(message_programs::make_program_backend(
      shared, grid.line(rank, 1), message_programs::tag_of({.members = {}, .number = 2}), {.link = kLink}));
  return grid::make_grid_backend(
      std::move(parts), {.grid = grid, .planner = inside_first(grid), .reproducible = options.reproducible});
}

}  // namespace dear::backends
