#include "dear/methods/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/units.h"

namespace dear::methods::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-12;  // sums of the same parts in another order

std::size_t at(std::int64_t number) { return static_cast<std::size_t>(number); }

void require_operators(std::int64_t operators, std::size_t stages) {
  if (stages == 0) throw ConfigError("a pipeline needs a device: give at least one");
  if (operators < static_cast<std::int64_t>(stages))
    throw ConfigError(
        fmt::format("{} operators are too few for {} stages: use fewer devices, or fewer stages "
                    "on each",
                    operators, stages));
}

class Search {
 public:
  Search(const StageCosts& costs, const Range& operators, const std::vector<Place>& stages,
         double transfer_scale, int device_before)
      : costs_(costs),
        operators_(operators),
        stages_(stages),
        scale_(transfer_scale),
        before_(device_before) {}

  [[nodiscard]] std::vector<Range> best() {
    require_operators(operators_.size(), stages_.size());
    const double bottleneck = solve(Goal::bottleneck, kNever);
    if (bottleneck == kNever) refuse();
    (void)solve(Goal::sum, bottleneck * kRounding);
    std::vector<Range> ranges(stages_.size());
    std::int64_t end = operators_.size();
    for (std::size_t stage = stages_.size(); stage-- > 0;) {
      const std::int64_t begin = from_[stage][at(end)];
      ranges[stage] = {operators_.begin + begin, operators_.begin + end};
      end = begin;
    }
    return ranges;
  }

 private:
  enum class Goal : std::uint8_t { bottleneck, sum };

  [[nodiscard]] int device_in_front(std::size_t stage) const {
    return stage == 0 ? before_ : stages_[stage - 1].device;
  }

  [[nodiscard]] bool fits(std::size_t stage, const Range& operators) const {
    return costs_.resident_bytes(operators) + stages_[stage].held * costs_.held_bytes(operators) <=
           stages_[stage].memory_bytes;
  }

  // Returns the value of the best whose stages are all busy for at most so long; fills from_.
  double solve(Goal goal, double most_busy) {
    const std::int64_t count = operators_.size();
    std::vector<double> before(at(count) + 1, kNever);
    before[0] = 0;
    from_.assign(stages_.size(), std::vector<std::int64_t>(at(count) + 1, 0));
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      std::vector<double> now(at(count) + 1, kNever);
      const bool is_last = stage + 1 == stages_.size();
      const auto most =
          count - static_cast<std::int64_t>(stages_.size() - stage - 1);  // others need one each
      for (auto begin = static_cast<std::int64_t>(stage); begin < most; ++begin) {
        if (before[at(begin)] == kNever) continue;
        for (std::int64_t end = is_last ? count : begin + 1; end <= most; ++end) {
          const Range range{operators_.begin + begin, operators_.begin + end};
          const double busy =
              stage_seconds(costs_, range, stages_[stage].device, device_in_front(stage), scale_);
          if (busy > most_busy || !fits(stage, range)) continue;
          const double total = goal == Goal::bottleneck ? std::max(before[at(begin)], busy)
                                                        : before[at(begin)] + whole(stage, range);
          if (total < now[at(end)]) {
            now[at(end)] = total;
            from_[stage][at(end)] = begin;
          }
        }
      }
      before = std::move(now);
    }
    return before[at(count)];
  }

  [[nodiscard]] double whole(std::size_t stage, const Range& range) const {
    const int device = stages_[stage].device, front = device_in_front(stage);
    const double computing = costs_.seconds(range, device).all();
    if (front < 0) return computing;
    return computing + costs_.activations(range.begin, front, device, scale_).seconds() +
           costs_.gradients(range.begin, front, device, scale_).seconds();
  }

  [[noreturn]] void refuse() const {
    for (std::int64_t id = operators_.begin; id < operators_.end; ++id) {
      const Range alone{id, id + 1};
      bool fits_somewhere = false;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage)
        fits_somewhere = fits_somewhere || fits(stage, alone);
      if (!fits_somewhere)
        throw ConfigError(fmt::format(
            "operator '{}' alone needs more memory than any stage has, {} for its parameters and {} for each "
            "micro-batch in flight: take smaller micro-batches or larger devices",
            printable(shortened(costs_.dag()[static_cast<OperatorId>(id)].name, 100)),
            format_bytes(costs_.resident_bytes(alone)), format_bytes(costs_.held_bytes(alone))));
    }
    throw ConfigError(
        fmt::format("no cut of {} operators into {} stages fits into the memories of the "
                    "devices: take smaller micro-batches, more devices or larger ones",
                    operators_.size(), stages_.size()));
  }

  const StageCosts& costs_;
  Range operators_;
  const std::vector<Place>& stages_;
  double scale_;
  int before_;
  std::vector<std::vector<std::int64_t>> from_;  // by stage and end: where the stage begins
};

}  // namespace

double stage_seconds(const StageCosts& costs, const Range& operators, int device, int device_before,
                     double transfer_scale) {
  const double computing = costs.seconds(operators, device).all();
  if (device_before < 0) return computing;
  return std::max({computing,
                   costs.activations(operators.begin, device_before, device, transfer_scale).busy_seconds,
                   costs.gradients(operators.begin, device_before, device, transfer_scale).busy_seconds});
}

std::vector<Range> best_partition(const StageCosts& costs, const Range& operators,
                                  const std::vector<Place>& stages, double transfer_scale,
                                  int device_before) {
  return Search(costs, operators, stages, transfer_scale, device_before).best();
}

void check_tolerance(double tolerance) {
  if (!(tolerance >= 0) || !std::isfinite(tolerance))
    throw ConfigError(
        fmt::format("fences cannot move by {} of a share: give a number, 0 or more", tolerance));
}

std::vector<Range> fence_partition(const StageCosts& costs,
                                   const std::vector<std::vector<Place>>& communities, double tolerance,
                                   double transfer_scale) {
  check_tolerance(tolerance);
  std::size_t stages = 0;
  std::vector<double> speed_until;  // by community
  double speed = 0;
  for (const std::vector<Place>& community : communities) {
    stages += community.size();
    for (const Place& place : community)
      speed += costs.cluster().devices[index_of(place.device)].flops_per_second;
    speed_until.push_back(speed);
  }
  const auto count = static_cast<std::int64_t>(costs.dag().size());
  require_operators(count, stages);

  const double all = costs.work({0, count});
  const double window = tolerance * all / static_cast<double>(communities.size());
  std::vector<Range> ranges;
  for (std::size_t which = 0; which < communities.size(); ++which) {
    const std::vector<Place>& community = communities[which];
    const std::int64_t begin = ranges.empty() ? 0 : ranges.back().end;
    const auto behind = static_cast<std::int64_t>(stages - ranges.size() - community.size());
    const double wanted = all * speed_until[which] / speed;
    // Outside of the window the nearest cut is the best.
    const auto rank = [&](std::int64_t cut) {
      const double off = std::abs(costs.work({0, cut}) - wanted);
      const bool outside = off > window;
      return std::tuple(outside, outside ? 0 : costs.dag().crossing_bytes(at(cut)), off);
    };
    std::int64_t end = count;
    if (behind > 0) {
      end = begin + std::ssize(community);  // each stage needs an operator, here and behind
      for (std::int64_t cut = end + 1; cut <= count - behind; ++cut)
        if (rank(cut) < rank(end)) end = cut;
    }
    const int before = which == 0 ? -1 : communities[which - 1].back().device;
    const std::vector<Range> cut = best_partition(costs, {begin, end}, community, transfer_scale, before);
    ranges.insert(ranges.end(), cut.begin(), cut.end());
  }
  return ranges;
}

std::vector<Range> equal_number(const OperatorDag& dag, std::size_t stages) {
  require_operators(static_cast<std::int64_t>(dag.size()), stages);
  std::vector<Range> ranges;
  for (std::size_t stage = 0; stage < stages; ++stage)
    ranges.push_back({static_cast<std::int64_t>(stage * dag.size() / stages),
                      static_cast<std::int64_t>((stage + 1) * dag.size() / stages)});
  return ranges;
}

std::vector<Range> equal_work(const StageCosts& costs, std::size_t stages) {
  const auto count = static_cast<std::int64_t>(costs.dag().size());
  require_operators(count, stages);
  const double all = costs.work({0, count});
  std::vector<Range> ranges;
  std::int64_t begin = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const auto behind = static_cast<std::int64_t>(stages - stage - 1);
    const double wanted = all * static_cast<double>(stage + 1) / static_cast<double>(stages);
    std::int64_t end = begin + 1;
    while (end < count - behind && (behind == 0 || std::abs(costs.work({0, end + 1}) - wanted) <=
                                                       std::abs(costs.work({0, end}) - wanted)))
      ++end;
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace dear::methods::pipeline
