#include "dear/methods/pipeline/planner.h"

#include <algorithm>
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

struct MethodInfo {
  PlanMethod method;
  std::string_view name;
};
const std::vector<MethodInfo>& methods() {
  static const std::vector<MethodInfo> kTable = {{PlanMethod::op_fence, "op-fence"},
                                                 {PlanMethod::equal_number, "equal-number"},
                                                 {PlanMethod::equal_work, "equal-work"}};
  return kTable;
}

class Planner {
 public:
  Planner(const StageCosts& costs, const PlanOptions& options) : costs_(costs), options_(options) {
    validate(costs.cluster());
    check(options.compression);
    check_tolerance(options.tolerance);
    shape_ = {.schedule = options.schedule,
              .places = static_cast<int>(costs.cluster().devices.size()),
              .stages_of_place = options.stages_of_device,
              .micro_batches = options.micro_batches};
    if (plans_warm_up(options.schedule)) shape_.warm_up = least_warm_up(shape_.places, options.micro_batches);
    check(shape_);
  }

  [[nodiscard]] Plan make() const {
    std::vector<int> listed(index_of(shape_.places));
    std::iota(listed.begin(), listed.end(), 0);
    const auto stages = static_cast<std::size_t>(shape_.stages());
    switch (options_.method) {
      case PlanMethod::equal_number:
        return checked(with(listed, equal_number(costs_.dag(), stages), ""));
      case PlanMethod::equal_work:
        return checked(with(listed, equal_work(costs_, stages), ""));
      case PlanMethod::op_fence:
        break;
    }
    return op_fence();
  }

 private:
  // In rounds, as stages pass the devices.
  [[nodiscard]] std::vector<std::vector<Place>> places(
      const std::vector<std::vector<int>>& communities) const {
    const std::vector<int> held = most_held(shape_);
    std::vector<std::vector<Place>> in_rounds;
    std::size_t stage = 0;
    for (int round = 0; round < shape_.stages_of_place; ++round) {
      for (const std::vector<int>& community : communities) {
        in_rounds.emplace_back();
        for (const int device : community)
          in_rounds.back().push_back(
              {.device = device,
               .memory_bytes =
                   costs_.cluster().devices[index_of(device)].memory_bytes / shape_.stages_of_place,
               .held = held[stage++]});
      }
    }
    return in_rounds;
  }

  [[nodiscard]] Plan op_fence() const {
    const std::vector<std::vector<int>> communities = ordered_communities(costs_.cluster());
    std::vector<int> order;
    for (const std::vector<int>& community : communities)
      order.insert(order.end(), community.begin(), community.end());
    const std::vector<std::vector<Place>> fenced = places(communities);
    std::vector<Place> in_a_row;
    for (const std::vector<Place>& part : fenced) in_a_row.insert(in_a_row.end(), part.begin(), part.end());

    std::vector<double> scales{1};
    if (options_.compression.rule != CompressionRule::none) scales.push_back(1 / options_.compression.ratio);
    std::optional<Plan> best;
    double best_seconds = 0;
    const auto consider = [&](Plan plan) {
      const double seconds = estimated_seconds(times_of(plan, costs_));
      if (best && seconds >= best_seconds) return;
      best = std::move(plan);
      best_seconds = seconds;
    };
    for (const double scale : scales) {
      try {
        consider(with(order, fence_partition(costs_, fenced, options_.tolerance, scale), "fences"));
      } catch (const ConfigError&) {
        // The share of a community may be too much for its memory where another cut is not.
      }
      const Range operators{0, static_cast<std::int64_t>(costs_.dag().size())};
      consider(with(order, best_partition(costs_, operators, in_a_row, scale), "dynamic programming"));
    }
    return checked(std::move(*best));
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
    plan.warm_up = shape_.warm_up;
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
  PipelineShape shape_;
};

}  // namespace

std::string_view name_of(PlanMethod method) { return methods().at(static_cast<std::size_t>(method)).name; }

PlanMethod find_plan_method(std::string_view name) {
  return find_named(methods(), name, "method of planning a pipeline").method;
}

Plan make_plan(const StageCosts& costs, const PlanOptions& options) { return Planner(costs, options).make(); }

}  // namespace dear::methods::pipeline
