#include "dear/comm/grid/grid_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/os/first_error.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/grid/lanes.h"
#include "dear/comm/grid/travel.h"
#include "dear/comm/group/heading.h"
#include "dear/comm/group/reduce.h"

namespace dear::grid {
namespace {

using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

// A training step has a few for each of its buckets.
constexpr std::size_t kMostPlans = 256;

// The part of the time for a collective by which deadlines of its phases differ.
constexpr int kSpreadOfDeadlines = 5;

// What ranks tell each other before a collective.
struct Word {
  comm::Heading heading;
  std::uint64_t plan = 0;  // its digest
};

class GridBackend final : public Backend {
 public:
  GridBackend(GridParts parts, GridOptions options)
      : parts_(std::move(parts)),
        options_(std::move(options)),
        lanes_(options_.grid.dimensions()),
        scratch_(parts_.lines) {
    modelled_ = !modelled_network().empty();
    across_ = parts_.direct ? only_dimension_around(parts_.direct->dimension) : -1;
    if (across_ >= 0) {
      talk_ = parts_.lines[index_of(parts_.direct->dimension)].get();
      talkers_ = options_.grid.line(rank(), parts_.direct->dimension);
      return;
    }
    talk_ = parts_.talk ? parts_.talk.get() : parts_.whole.get();
    talkers_.resize(index_of(size()));
    std::iota(talkers_.begin(), talkers_.end(), 0);
  }

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
    return guarded([&] { return home().allocate(bytes, deadline); });
  }

  Timing run(const Request& request, Deadline deadline) override {
    return guarded([&] {
      if (request.collective == Collective::reduce && size() > 1) {
        Request for_all = request;
        for_all.collective = Collective::all_reduce;
        return travel(for_all, deadline);
      }
      const bool of_shards = request.collective == Collective::reduce_scatter ||
                             request.collective == Collective::all_gather ||
                             request.collective == Collective::all_reduce;
      if (size() == 1 || request.collective == Collective::all_to_all_v)
        return parts_.whole->run(request, deadline);
      if (of_shards) return travel(request, deadline);
      return parts_.direct ? along_lines(request, deadline) : parts_.whole->run(request, deadline);
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
  // The backend whose buffers are those of the grid.
  [[nodiscard]] Backend& home() const {
    return parts_.direct ? *parts_.lines[index_of(parts_.direct->dimension)] : *parts_.whole;
  }
  Timing along_lines(const Request& request, Deadline deadline);
  Timing all_to_all(const Request& request, Deadline deadline);
  // The one other dimension of several members, where that lies outside of this one; else -1.
  [[nodiscard]] int only_dimension_around(int inside) const {
    int found = -1;
    for (int dimension = 0; dimension < options_.grid.dimensions(); ++dimension) {
      if (dimension == inside || options_.grid.sizes[index_of(dimension)] == 1) continue;
      if (found >= 0 || dimension < inside) return -1;
      found = dimension;
    }
    return found;
  }

  struct Planned {
    ChunkPlan plan;
    std::uint64_t digest = 0;
    std::vector<Places> places{};  // of pieces, by chunk
    std::vector<int> turns{};      // by chunk and step, when the phase comes in in_order(plan)
  };

  // The first error is this rank's for good, and the peers in all dimensions learn of it.
  template <typename Function>
  std::invoke_result_t<Function> guarded(const Function& function) {
    return error_.guard(function, [this](const std::exception& error) { abort(error.what()); });
  }

  const Planned& planned(Collective collective, std::int64_t bytes);
  // Compares with the peers what all are about to do.
  Timing meet(const Word& mine, const Request& request, Deadline deadline);
  Timing travel(const Request& request, Deadline deadline);

  GridParts parts_;
  GridOptions options_;
  Lanes lanes_;
  Scratch scratch_;
  bool modelled_ = false;
  int across_ = -1;           // of two dimensions the one that is not direct; else -1
  Backend* talk_ = nullptr;   // with whom this rank compares what they are about to do,
  std::vector<int> talkers_;  // and who that is
  Buffer words_;
  std::map<std::pair<Collective, std::int64_t>, Planned> plans_;
  std::uint64_t sequence_ = 0;
  os::FirstError error_;
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
  Planned planned{.plan = std::move(plan)};
  planned.digest = algorithm::digest(planned.plan);
  for (const std::vector<int>& order : planned.plan.orders) {
    planned.places.emplace_back(options_.grid, order, rank());
  }
  planned.turns.resize(index_of(planned.plan.chunks() * planned.plan.steps()));
  int turn = 0;
  for (const ChunkPhase& phase : algorithm::in_order(planned.plan)) {
    planned.turns[index_of(phase.chunk * planned.plan.steps() + phase.step)] = turn++;
  }
  return plans_.emplace(std::pair(collective, bytes), std::move(planned)).first->second;
}

Timing GridBackend::meet(const Word& mine, const Request& request, Deadline deadline) {
  constexpr auto kBlock = os::kCacheLineBytes;  // block r is shard r of what is gathered
  static_assert(sizeof(Word) <= kBlock);
  const std::int64_t bytes = kBlock * talk_->size();
  if (!words_.region()) words_ = talk_->allocate(bytes, deadline);
  std::memcpy(words_.data() + kBlock * talk_->rank(), &mine, sizeof mine);
  const Timing timing = talk_->run({.collective = Collective::all_gather,
                                    .view = {.buffer = words_, .count = bytes, .dtype = DType::u8},
                                    .asked = request.asked,
                                    .waiting = request.waiting,
                                    .timed = request.timed},
                                   deadline);
  for (int talker = 0; talker < talk_->size(); ++talker) {
    const int other = talkers_[index_of(talker)];
    Word theirs;
    std::memcpy(&theirs, words_.data() + kBlock * talker, sizeof theirs);
    if (theirs.heading != mine.heading) {
      throw MismatchError(fmt::format("rank {} came to {} (collective {}), rank {} to {} (collective {}): {}",
                                      other, describe(theirs.heading), theirs.heading.sequence, rank(),
                                      describe(mine.heading), mine.heading.sequence, comm::kSameOrder));
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
  const Word word{.heading = comm::heading_of(++sequence_, request), .plan = how.digest};
  Timing timing = meet(word, request, deadline);
  if (request.view.count == 0) return timing;
  const bool averages_integers =
      request.reduction == Reduction::average && comm::is_integer(request.view.dtype);
  const std::string_view said(reinterpret_cast<const char*>(&word), sizeof word);
  Travel travel({.plan = how.plan,
                 .places = how.places,
                 .request = request,
                 .rank = rank(),
                 .unsummed = options_.reproducible || averages_integers,
                 .modelled = modelled_,
                 .label = static_cast<std::int64_t>(Digest().add(said).value() >> 1),
                 .direct = parts_.direct ? &*parts_.direct : nullptr},
                parts_.lines, scratch_, deadline);
  // [Note: deadlines of phases] Where a rank is stuck, all others are soon, each in a phase that comes after
  // the one that it holds up. The earlier a phase, the earlier its deadline, so that the ranks that wait for
  // the stuck one itself give up first, and tell the others whose fault it is.
  const auto spread = deadline.remaining() / kSpreadOfDeadlines;
  const auto deadline_of = [&](ChunkPhase phase) {
    const int turn = how.turns[index_of(phase.chunk * how.plan.steps() + phase.step)];
    const auto phases = static_cast<int>(how.turns.size());
    return Deadline(deadline.at() - spread / phases * (phases - 1 - turn));
  };
  lanes_.run(
      how.plan, [&](ChunkPhase phase, SteadyTime ready) { travel.serve(phase, ready, deadline_of(phase)); },
      [&](const std::exception& error) { abort(error.what()); });
  // Until all are through, a neighbour may still read this rank's buffers.
  if (parts_.direct) home().run({.waiting = request.waiting, .timed = false}, deadline);
  timing.end = end_now(request);
  return timing;
}

// When the lines of a dimension have met, any member of a line stands for all of it in the next dimension.
Timing GridBackend::along_lines(const Request& request, Deadline deadline) {
  if (request.collective == Collective::all_to_all) {
    return across_ < 0 ? parts_.whole->run(request, deadline) : all_to_all(request, deadline);
  }
  Timing timing = begin_now(request);
  const algorithm::Grid& grid = options_.grid;
  for (int dimension = grid.dimensions(); dimension-- > 0;) {
    const auto& line = parts_.lines[index_of(dimension)];
    if (!line) continue;
    Request part = request;
    bool concerned = true;  // by a broadcast: its root is in a line like this rank's
    if (request.collective == Collective::broadcast) {
      part.root = grid.coordinate(request.root, dimension);
      for (int inner = 0; inner < dimension; ++inner) {
        concerned = concerned && grid.coordinate(rank(), inner) == grid.coordinate(request.root, inner);
      }
    }
    if (concerned) line->run(part, deadline);
  }
  timing.end = end_now(request);
  return timing;
}

// Blocks for the ranks of a direct line lie side by side: they go there together, to the rank at the same
// place, and its neighbours fetch theirs.
Timing GridBackend::all_to_all(const Request& request, Deadline deadline) {
  Timing timing = begin_now(request);
  const int inside = parts_.direct->dimension;
  const std::int64_t element = size_of(request.view.dtype);
  scratch_.reserve(parts_.lines, request.view.count * element, 1, deadline);
  const Buffer& scratch = scratch_.side(scratch_.of(inside), 0);
  Request over = request;
  over.output = {.buffer = scratch, .count = request.view.count, .dtype = request.view.dtype};
  parts_.lines[index_of(across_)]->run(over, deadline);
  const Request all{.waiting = request.waiting, .timed = false};
  home().run(all, deadline);
  const std::int64_t bytes = request.view.count / size() * element;
  const int members = options_.grid.sizes[index_of(inside)];
  for (int from = 0; from < size() && bytes > 0; ++from) {
    const int member = options_.grid.coordinate(from, inside);
    const int block =
        options_.grid.coordinate(from, across_) * members + options_.grid.coordinate(rank(), inside);
    std::memcpy(request.output.buffer.data() + request.output.offset_bytes + from * bytes,
                parts_.direct->part_of(scratch, member) + block * bytes, static_cast<std::size_t>(bytes));
  }
  home().run(all, deadline);
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
    const std::size_t at = index_of(dimension);
    const auto& line = parts.lines[at];
    if (!line && grid.sizes[at] == 1) continue;
    if (line && parts.direct && dimension != parts.direct->dimension && !line->takes_any_buffer()) {
      throw ConfigError(fmt::format(
          "rank {}: the line of dimension {} takes no buffers but its own, and those of a grid with "
          "a direct dimension are that one's",
          rank, dimension));
    }
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
