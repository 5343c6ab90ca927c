#include "dear/methods/pipeline/planner.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/pipeline/communities.h"
#include "dear/methods/pipeline/partition.h"

namespace dear::methods::pipeline {
namespace {

using Communities = std::vector<std::vector<int>>;

class Planner {
 public:
  Planner(const StageCosts& costs, const PlanOptions& options) : costs_(costs), options_(options) {
    validate(costs.cluster());
    check(options.compression);
    check_tolerance(options.tolerance);
  }

  [[nodiscard]] Plan make() const {
    std::vector<int> listed(costs_.cluster().devices.size());
    std::iota(listed.begin(), listed.end(), 0);
    const auto stages = static_cast<std::size_t>(shape_on(listed.size()).stages());
    switch (options_.method) {
      case PlanMethod::equal_number:
        return checked(with(listed, equal_number(costs_.dag(), stages), ""));
      case PlanMethod::equal_work:
        return checked(with(listed, equal_work(costs_, stages), ""));
      case PlanMethod::plain_dp:
        return searched({listed});
      case PlanMethod::op_fence:
        break;
    }
    const Communities all = ordered_communities(costs_.cluster());
    return options_.devices == DeviceUse::all ? searched(all) : fastest(all);
  }

 private:
  [[nodiscard]] PipelineShape shape_on(std::size_t devices) const {
    PipelineShape shape{.schedule = options_.schedule,
                        .places = static_cast<int>(devices),
                        .stages_of_place = options_.stages_of_device,
                        .micro_batches = options_.micro_batches};
    if (plans_warm_up(options_.schedule)) shape.warm_up = least_warm_up(shape.places, options_.micro_batches);
    check(shape);
    return shape;
  }

  // In rounds, as stages pass the devices.
  [[nodiscard]] std::vector<std::vector<Place>> places(const Communities& communities,
                                                       const PipelineShape& shape) const {
    const std::vector<int> held = most_held(shape);
    std::vector<std::vector<Place>> in_rounds;
    std::size_t stage = 0;
    for (int round = 0; round < shape.stages_of_place; ++round) {
      for (const std::vector<int>& community : communities) {
        in_rounds.emplace_back();
        for (const int device : community)
          in_rounds.back().push_back(
              {.device = device,
               .memory_bytes =
                   costs_.cluster().devices[index_of(device)].memory_bytes / shape.stages_of_place,
               .held = held[stage++]});
      }
    }
    return in_rounds;
  }

  [[nodiscard]] bool has_ties() const {
    const std::vector<Operator>& operators = costs_.dag().operators();
    return std::any_of(operators.begin(), operators.end(),
                       [](const Operator& op) { return op.tied.has_value(); });
  }

  // The closed form does not know beside what tied gradients travel, nor what shares a wire.
  [[nodiscard]] double seconds_of(const Plan& plan) const {
    const PipelineTimes times = times_of(plan, costs_);
    return has_ties() || !times.shared_wires.empty() ? play(times).iteration_seconds
                                                     : estimated_seconds(times);
  }

  // The fastest plan of those that were looked at.
  struct Best {
    std::optional<Plan> plan;
    double seconds = 0;
  };
  // Returns the seconds of the plan.
  double consider(Best& best, Plan plan) const {
    const double seconds = seconds_of(plan);
    if (!best.plan || seconds < best.seconds) best = {.plan = std::move(plan), .seconds = seconds};
    return seconds;
  }

  [[nodiscard]] Plan searched(const Communities& communities) const {
    Best best;
    consider_order(communities, best);
    check(*best.plan, costs_);
    if (gains_by_near_ends(*best.plan, best)) with_near_ends(communities, best);
    return std::move(*best.plan);
  }

  void consider_order(const Communities& communities, Best& best) const {
    if (options_.method == PlanMethod::op_fence) (void)with_fences(communities, best);
    with_best_cuts(communities, best);
  }

  // Whether without tied gradients this plan is faster than the best, so that other orders might be.
  [[nodiscard]] bool gains_by_near_ends(const Plan& plan, const Best& best) const {
    if (options_.method != PlanMethod::op_fence || !has_ties()) return false;
    PipelineTimes times = times_of(plan, costs_);
    times.exchanges.clear();
    return play(times).iteration_seconds < best.seconds;
  }

  // Fences, which take little time, say which orders are worth the search for the best cuts.
  void with_near_ends(const Communities& communities, Best& best) const {
    constexpr std::size_t kSearched = 4;
    std::vector<std::pair<double, Communities>> orders;
    for (const Communities& order : opened_rings(costs_.cluster(), communities)) {
      Best fenced;
      orders.emplace_back(with_fences(order, fenced), order);
      take(best, std::move(fenced));
    }
    std::stable_sort(orders.begin(), orders.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    orders.resize(std::min(orders.size(), kSearched));
    for (const auto& [seconds, order] : orders) {
      Best cut;
      try {
        with_best_cuts(order, cut);
      } catch (const ConfigError&) {
        continue;  // this order does not fit into memories, as the first one does
      }
      take(best, std::move(cut));
    }
  }

  // Only a plan that can be replaces one that can.
  void take(Best& best, Best found) const {
    if (!found.plan || found.seconds >= best.seconds) return;
    try {
      check(*found.plan, costs_);
    } catch (const ConfigError&) {
      return;
    }
    best = std::move(found);
  }

  [[nodiscard]] static std::vector<int> in_a_row(const Communities& communities) {
    std::vector<int> order;
    for (const std::vector<int>& community : communities)
      order.insert(order.end(), community.begin(), community.end());
    return order;
  }

  // What the links may take, of their dense bytes.
  [[nodiscard]] std::vector<double> scales() const {
    std::vector<double> scales{1};
    if (options_.compression.rule != CompressionRule::none) scales.push_back(1 / options_.compression.ratio);
    return scales;
  }

  void with_best_cuts(const Communities& communities, Best& best) const {
    const std::vector<int> order = in_a_row(communities);
    std::vector<Place> stages;
    for (const std::vector<Place>& part : places(communities, shape_on(order.size())))
      stages.insert(stages.end(), part.begin(), part.end());
    const Range operators{0, static_cast<std::int64_t>(costs_.dag().size())};
    const bool fences = options_.method == PlanMethod::op_fence;
    for (const double scale : scales())
      (void)consider(best, with(order, best_partition(costs_, operators, stages, scale),
                                fences ? "dynamic programming" : ""));
  }

  // Returns the least seconds of these plans: infinitely many where the share of a community is too much for
  // its memory, as another cut need not be.
  double with_fences(const Communities& communities, Best& best) const {
    const std::vector<int> order = in_a_row(communities);
    const std::vector<std::vector<Place>> fenced = places(communities, shape_on(order.size()));
    double least = std::numeric_limits<double>::infinity();
    for (const double scale : scales()) {
      std::vector<Range> ranges;
      try {
        ranges = fence_partition(costs_, fenced, options_.tolerance, scale);
      } catch (const ConfigError&) {
        continue;
      }
      least = std::min(least, consider(best, with(order, ranges, "fences")));
    }
    return least;
  }

  [[nodiscard]] Plan fastest(const Communities& all) const {
    Best best;
    std::exception_ptr first_failure;
    std::vector<std::pair<Communities, Plan>> parts;
    for (std::size_t count = all.size(); count > 0; --count) {
      for (auto begin = all.begin(); begin + static_cast<std::ptrdiff_t>(count) <= all.end(); ++begin) {
        const Communities part(begin, begin + static_cast<std::ptrdiff_t>(count));
        Best of_part;
        try {
          consider_order(part, of_part);
          check(*of_part.plan, costs_);
        } catch (const ConfigError&) {
          if (!first_failure) first_failure = std::current_exception();  // of all devices
          continue;
        }
        (void)consider(best, *of_part.plan);
        parts.emplace_back(part, std::move(*of_part.plan));
      }
    }
    if (!best.plan) std::rethrow_exception(first_failure);
    for (const auto& [part, plan] : parts)
      if (gains_by_near_ends(plan, best)) with_near_ends(part, best);
    return std::move(*best.plan);
  }

  [[nodiscard]] Plan with(const std::vector<int>& devices, const std::vector<Range>& ranges,
                          std::string_view how) const {
    Plan plan{.model = costs_.dag().name(),
              .method = std::string(name_of(options_.method)),
              .schedule = options_.schedule,
              .micro_batches = options_.micro_batches,
              .stages = {}};
    if (!how.empty()) plan.method += fmt::format(", {}", how);
    for (std::size_t s = 0; s < ranges.size(); ++s)
      plan.stages.push_back({.device = devices[s % devices.size()], .operators = ranges[s]});
    plan.warm_up = shape_on(devices.size()).warm_up;
    plan.messages = compressed_messages(costs_.dag(), costs_.cluster(), plan.stages, options_.compression);
    plan.warm_up = planned_warm_up(times_of(plan, costs_), most_warm_up(plan));
    return plan;
  }

  // By stage, what its memory holds. Every stage of zb-h1 holds as many as the first has warm-up.
  [[nodiscard]] std::vector<int> most_warm_up(const Plan& plan) const {
    std::vector<int> most;
    for (const Stage& stage : plan.stages) {
      const std::int64_t left = costs_.cluster().devices[index_of(stage.device)].memory_bytes -
                                costs_.resident_bytes(stage.operators);
      const std::int64_t each = std::max<std::int64_t>(1, costs_.held_bytes(stage.operators));
      most.push_back(static_cast<int>(std::clamp<std::int64_t>(left / each, 1, options_.micro_batches)));
    }
    if (options_.schedule == ScheduleKind::zb_h1)
      most.assign(most.size(), *std::min_element(most.begin(), most.end()));
    return most;
  }

  [[nodiscard]] Plan checked(Plan plan) const {
    check(plan, costs_);
    return plan;
  }

  const StageCosts& costs_;
  const PlanOptions& options_;
};

}  // namespace

const std::vector<PlanMethodInfo>& plan_methods() {
  static const std::vector<PlanMethodInfo> kTable = {{PlanMethod::op_fence, "op-fence"},
                                                     {PlanMethod::plain_dp, "plain-dp"},
                                                     {PlanMethod::equal_number, "equal-number"},
                                                     {PlanMethod::equal_work, "equal-work"}};
  return kTable;
}

std::string_view name_of(PlanMethod method) {
  return plan_methods().at(static_cast<std::size_t>(method)).name;
}

PlanMethod find_plan_method(std::string_view name) {
  return find_named(plan_methods(), name, "method of planning a pipeline").method;
}

Plan make_plan(const StageCosts& costs, const PlanOptions& options) { return Planner(costs, options).make(); }

}  // namespace dear::methods::pipeline
