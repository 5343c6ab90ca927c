#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/grid/direct_dimension.h"
#include "dear/comm/group/backend.h"
#include "dear/platform/algorithm/chunk_plan.h"

// Ranks in a grid whose dimensions are networks of their own: reduce-scatters, all-gathers and all-reduces
// travel in chunks, dimension by dimension, each chunk in an order of its own, so that all dimensions are
// busy at once (Themis: Rashidi et al. 2022, doi:10.1145/3470496.3527382).
namespace dear::grid {

// Decides how a collective of so many bytes (a whole vector) travels; the same on all ranks.
using ChunkPlanner = std::function<algorithm::ChunkPlan(Collective collective, std::int64_t bytes)>;

struct GridOptions {
  algorithm::Grid grid;
  ChunkPlanner planner;
  // Contributions travel unsummed and are added in the order of ranks, half precision rounded once: bit for
  // bit what shared memory gives. A reduce-scatter then carries as much in each dimension as in the first.
  bool reproducible = false;
};

struct GridParts {
  // All ranks: for whatever is no collective of shards, and for what ranks tell each other before one.
  std::unique_ptr<Backend> whole;
  // By dimension, the ranks of this rank's line, by coordinate; null where the size is 1. Dimensions whose
  // lines are slow at once share a lane in the plan.
  std::vector<std::unique_ptr<Backend>> lines;
  // All ranks again, for what ranks tell each other before a collective; null where `whole` may serve for
  // that: it does not where it is over a modelled network, which then would carry it.
  std::unique_ptr<Backend> talk{};
  // Where there is one, buffers of the grid are those of its line, which the other lines and the whole have
  // to take: contributions are then added, and results taken, where they lie. Barriers and broadcasts go
  // along the lines as well, and with two dimensions so do all-to-alls.
  std::optional<DirectDimension> direct{};
};

// ConfigError for what is no grid, and for one that has not so many ranks.
void validate(const algorithm::Grid& grid, int ranks);

// Lines as parts of the whole (Backend::split, with the numbers from 1 on). A collective.
std::vector<std::unique_ptr<Backend>> split_into_lines(Backend& whole, const algorithm::Grid& grid,
                                                       Deadline deadline);

// A backend for all ranks of the grid. Each collective of shards begins with an exchange of what ranks are
// about to do and of the digests of their plans: MismatchError naming the rank that differs. From then on no
// rank waits for more than the phases that its own need. Sums are added up along the dimensions, in the same
// order in every run with the same plan; averages of integers, which depend on it, in the order of ranks.
//
// With two dimensions, one of them direct, that exchange is among the ranks of a direct line alone: the
// others meet along the other dimension, where messages tell of a difference.
//
// The first error on a rank ends all its lines and the whole, and so reaches all ranks. Buffers are those of
// the whole, unless a line is direct. Takes as much memory again as the largest vector for each dimension
// whose line takes no buffers but its own (Backend::takes_any_buffer), and twice as much where contributions
// travel unsummed.
//
// ConfigError where the grid has not as many ranks as the whole, for a line that is none of it, and for one
// that does not take the buffers of a direct line.
std::unique_ptr<Backend> make_grid_backend(GridParts parts, GridOptions options);

}  // namespace dear::grid
