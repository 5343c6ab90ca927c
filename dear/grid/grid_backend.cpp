#include "dear/grid/grid_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/cache_line.h"
#include "dear/base/error.h"
#include "dear/base/first_error.h"
#include "dear/collective/heading.h"
#include "dear/collective/reduce.h"
#include "dear/grid/lanes.h"
#include "dear/grid/travel.h"

namespace dear::grid {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

// A training step has a few for each of its buckets.
constexpr std::size_t kMostPlans = 256;

// What ranks tell each other before a collective.
struct Word {
  collective::Heading heading;
  std::uint64_t plan = 0;  // its digest
};

class GridBackend final : public Backend {
 public:
  GridBackend(GridParts parts, GridOptions options)
      : parts_(std::move(parts)),
        options_(std::move(options)),
        lanes_(options_.grid.dimensions()),
        scratch_(parts_.lines) {}

  [[nodiscard]] int rank() const override { return parts_.whole->rank(); }
  [[nodiscard]] int size() const override { return parts_.whole->size(); }
  [[nodiscard]] int name() const override { return parts_.whole->name(); }
  [[nodiscard]] std::string description() const override {
    std::vector<std::string> lines;
    for (const auto& line : parts_.lines) lines.push_back(line ? line->description() : "1 rank");
    return fmt::format("grid {}: {}", fmt::join(options_.grid.sizes, "x"), fmt::join(lines, " | "));
  }
  [[nodiscard]] std::string modelled_network() const override {
    std::vector<std::string> networks;
    for (const auto& line : parts_.lines) {
      if (line && !line->modelled_network().empty()) networks.push_back(line->modelled_network());
    }
    return fmt::format("{}", fmt::join(networks, " | "));
  }

  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return guarded([&] { return parts_.whole->allocate(bytes, deadline); });
  }

  Timing run(const Request& request, Deadline deadline) override {
    return guarded([&] {
      const bool of_shards = request.collective == Collective::reduce_scatter ||
                             request.collective == Collective::all_gather ||
                             request.collective == Collective::all_reduce;
      if (!of_shards || size() == 1) return parts_.whole->run(request, deadline);
      return travel(request, deadline);
    });
  }

  // The lines have the first numbers for groups.
  std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline deadline) override {
    return guarded([&] {
      Subgroup further = subgroup;
      further.number += options_.grid.dimensions() + 1;
      return parts_.whole->split(further, deadline);
    });
  }

  void abort(const std::string& reason) noexcept override {
    parts_.whole->abort(reason);
    if (parts_.talk) parts_.talk->abort(reason);
    for (const auto& line : parts_.lines) {
      if (line) line->abort(reason);
    }
  }

 private:
  struct Planned {
    ChunkPlan plan;
    std::uint64_t digest = 0;
  };

  // The first error is this rank's for good, and the peers in all dimensions learn of it.
  template <typename Function>
  std::invoke_result_t<Function> guarded(const Function& function) {
    return error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

  const Planned& planned(Collective collective, std::int64_t bytes);
  Timing meet(const Request& request, const Planned& planned, Deadline deadline);
  Timing travel(const Request& request, Deadline deadline);

  GridParts parts_;
  GridOptions options_;
  Lanes lanes_;
  Scratch scratch_;
  Buffer words_;
  std::map<std::pair<Collective, std::int64_t>, Planned> plans_;
  std::uint64_t sequence_ = 0;
  FirstError error_;
};

const GridBackend::Planned& GridBackend::planned(Collective collective, std::int64_t bytes) {
  const auto found = plans_.find({collective, bytes});
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  ChunkPlan plan = options_.planner(collective, bytes);
  validate(plan);
  if (plan.grid != options_.grid || plan.collective != collective ||
      plan.service.size() > plan.grid.sizes.size()) {
    throw ConfigError(
        fmt::format("rank {} asked for a plan of {} over {} ranks, and got '{}' of {} over {} with {} lanes",
                    name(), name_of(collective), fmt::join(options_.grid.sizes, "x"), plan.name,
                    name_of(plan.collective), fmt::join(plan.grid.sizes, "x"), plan.service.size()));
  }
  const std::uint64_t digest = algorithm::digest(plan);
  return plans_.emplace(std::pair(collective, bytes), Planned{.plan = std::move(plan), .digest = digest})
      .first->second;
}

Timing GridBackend::meet(const Request& request, const Planned& planned, Deadline deadline) {
  Backend& talk = parts_.talk ? *parts_.talk : *parts_.whole;
  constexpr auto kBlock = kCacheLineBytes;  // block r is shard r of what is gathered
  static_assert(sizeof(Word) <= kBlock);
  if (!words_.region()) words_ = talk.allocate(kBlock * size(), deadline);
  const Word mine{.heading = collective::heading_of(++sequence_, request), .plan = planned.digest};
  std::memcpy(words_.data() + kBlock * rank(), &mine, sizeof mine);
  Timing timing = talk.run({.collective = Collective::all_gather,
                            .view = {.buffer = words_, .count = kBlock * size(), .dtype = DType::u8},
                            .asked = request.asked,
                            .waiting = request.waiting,
                            .timed = request.timed},
                           deadline);
  for (int other = 0; other < size(); ++other) {
    Word theirs;
    std::memcpy(&theirs, words_.data() + kBlock * other, sizeof theirs);
    if (theirs.heading != mine.heading) {
      throw MismatchError(fmt::format("rank {} came to {} (collective {}), rank {} to {} (collective {}): {}",
                                      other, describe(theirs.heading), theirs.heading.sequence, rank(),
                                      describe(mine.heading), sequence_, collective::kSameOrder));
    }
    if (theirs.plan != mine.plan) {
      throw MismatchError(
          fmt::format("rank {} has another chunk plan than rank {} for {}: give every rank the same grid, "
                      "cluster and algorithm",
                      other, rank(), describe(mine.heading)));
    }
  }
  return timing;
}

Timing GridBackend::travel(const Request& request, Deadline deadline) {
  const Planned& how = planned(request.collective, request.view.count * size_of(request.view.dtype));
  Timing timing = meet(request, how, deadline);
  if (request.view.count == 0) return timing;
  const bool averages_integers =
      request.reduction == Reduction::average && collective::is_integer(request.view.dtype);
  Travel travel({.plan = how.plan,
                 .request = request,
                 .rank = rank(),
                 .unsummed = options_.reproducible || averages_integers,
                 .modelled = !modelled_network().empty()},
                parts_.lines, scratch_, deadline);
  lanes_.run(
      how.plan, [&](ChunkPhase phase, SteadyTime ready) { travel.serve(phase, ready, deadline); },
      [&](const std::exception& error) { abort(error.what()); });
  timing.end = end_now(request);
  return timing;
}

void validate_parts(const GridParts& parts, const algorithm::Grid& grid) {
  validate(grid, parts.whole->size());
  const int rank = parts.whole->rank();
  if (parts.lines.size() != grid.sizes.size()) {
    throw ConfigError(fmt::format("rank {} has {} lines in a grid of {} dimensions: give one for each", rank,
                                  parts.lines.size(), grid.dimensions()));
  }
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    const auto at = static_cast<std::size_t>(dimension);
    const auto& line = parts.lines[at];
    if (!line && grid.sizes[at] == 1) continue;
    if (!line || line->size() != grid.sizes[at] || line->rank() != grid.coordinate(rank, dimension)) {
      throw ConfigError(fmt::format(
          "rank {} of a grid of {} is rank {} of {} in its line of dimension {}, and should be rank {} of {}",
          rank, fmt::join(grid.sizes, "x"), line ? line->rank() : 0, line ? line->size() : 0, dimension,
          grid.coordinate(rank, dimension), grid.sizes[at]));
    }
  }
}

}  // namespace

void validate(const algorithm::Grid& grid, int ranks) {
  validate(grid);
  if (grid.ranks() != ranks) {
    throw ConfigError(
        fmt::format("a grid of {} has {} ranks, and there are {}: give sizes whose product is {}",
                    fmt::join(grid.sizes, "x"), grid.ranks(), ranks, ranks));
  }
}

std::vector<std::unique_ptr<Backend>> split_into_lines(Backend& whole, const algorithm::Grid& grid,
                                                       Deadline deadline) {
  validate(grid, whole.size());
  std::vector<std::unique_ptr<Backend>> lines;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    const bool alone = grid.sizes[static_cast<std::size_t>(dimension)] == 1;
    std::vector<int> members = grid.line(whole.rank(), dimension);
    const int color = members.front();
    lines.push_back(
        alone ? nullptr
              : whole.split({.members = std::move(members), .number = dimension + 1, .color = color},
                            deadline));
  }
  return lines;
}

std::unique_ptr<Backend> make_grid_backend(GridParts parts, GridOptions options) {
  validate_parts(parts, options.grid);
  return std::make_unique<GridBackend>(std::move(parts), std::move(options));
}

}  // namespace dear::grid
