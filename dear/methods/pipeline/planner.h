#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/methods/pipeline/messages.h"
#include "dear/methods/pipeline/operators.h"
#include "dear/methods/pipeline/plan.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::methods::pipeline {

enum class PlanMethod : std::uint8_t {
  op_fence,      // FusionLLM's: communities in order, then the better of fences and best_partition()
  plain_dp,      // best_partition() of devices as the cluster lists them
  equal_number,  // as many operators for each device, as the cluster lists them
  equal_work     // as much work for each device, as the cluster lists them
};
struct PlanMethodInfo {
  PlanMethod method;
  std::string_view name;
};
std::string_view name_of(PlanMethod method);  // "op-fence", "plain-dp", "equal-number", "equal-work"
const std::vector<PlanMethodInfo>& plan_methods();
PlanMethod find_plan_method(std::string_view name);  // ConfigError that lists them

// Where links are slow, fewer devices may be faster: those of communities that are neighbours in their order.
enum class DeviceUse : std::uint8_t { all, fastest };

struct PlanOptions {
  PlanMethod method = PlanMethod::op_fence;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 8;
  int stages_of_device = 1;
  LinkCompression compression{};
  double tolerance = 0.25;             // of fences; see fence_partition()
  DeviceUse devices = DeviceUse::all;  // of op-fence; rivals use all
};

// The warm-up is planned by link, as far as memories let it, whatever the method. OP-Fence tries what links
// take dense and, where it compresses, what ratio the slowest gets, and keeps the plan with the least
// estimated_seconds(). Plain DP tries the same, but no fences.
//
// ConfigError for a cluster that validate() refuses, what best_partition(), check(Plan) and
// check(LinkCompression) refuse: fewer operators than stages, memories that are too small.
Plan make_plan(const StageCosts& costs, const PlanOptions& options = {});

}  // namespace dear::methods::pipeline
