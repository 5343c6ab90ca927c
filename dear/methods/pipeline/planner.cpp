#include "dear/methods/pipeline/planner.h"

#include <algorithm>
#include <exception>
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

  [[nodiscard]] double estimated(const Plan& plan) const { return estimated_seconds(times_of(plan, costs_)); }

  [[nodiscard]] Plan searched(const Communities& communities) const {
    std::vector<int> order;
    for (const std::vector<int>& community : communities)
      order.insert(order.end(), community.begin(), community.end());
    const std::vector<std::vector<Place>> fenced = places(communities, shape_on(order.size()));
    std::vector<Place> in_a_row;
    for (const std::vector<Place>& part : fenced) in_a_row.insert(in_a_row.end(), part.begin(), part.end());

    const bool fences = options_.method == PlanMethod::op_fence;
    std::vector<double> scales{1};
    if (options_.compression.rule != CompressionRule::none) scales.push_back(1 / options_.compression.ratio);
    std::optional<Plan> best;
    const auto consider = [&](Plan plan) {
      if (!best || estimated(plan) < estimated(*best)) best = std::move(plan);
    };
    for (const double scale : scales) {
      if (fences)
        if (std::optional<Plan> plan = with_fences(order, fenced, scale)) consider(std::move(*plan));
      const Range operators{0, static_cast<std::int64_t>(costs_.dag().size())};
      consider(with(order, best_partition(costs_, operators, in_a_row, scale),
                    fences ? "dynamic programming" : ""));
    }
    return checked(std::move(*best));
  }

  // None where the share of a community is too much for its memory, as another cut need not be.
  [[nodiscard]] std::optional<Plan> with_fences(const std::vector<int>& order,
                                                const std::vector<std::vector<Place>>& communities,
                                                double scale) const {
    std::vector<Range> ranges;
    try {
      ranges = fence_partition(costs_, communities, options_.tolerance, scale);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
    return with(order, ranges, "fences");
  }

  [[nodiscard]] Plan fastest(const Communities& all) const {
    std::optional<Plan> best;
    std::exception_ptr first_failure;
    for (std::size_t count = all.size(); count > 0; --count) {
      for (auto begin = all.begin(); begin + static_cast<std::ptrdiff_t>(count) <= all.end(); ++begin) {
        try {
          Plan plan = searched({begin, begin + static_cast<std::ptrdiff_t>(count)});
          if (!best || estimated(plan) < estimated(*best)) best = std::move(plan);
        } catch (const ConfigError&) {
          if (!first_failure) first_failure = std::current_exception();  // of all devices
        }
      }
    }
    if (!best) std::rethrow_exception(first_failure);
    return std::move(*best);
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
