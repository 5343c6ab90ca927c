#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/pipeline/messages.h"
#include "dear/methods/pipeline/orders.h"
#include "dear/methods/pipeline/stages.h"
#include "dear/methods/pipeline/timeline.h"

namespace dear::methods::pipeline {

// All that a run needs to know. It is made on one rank and is the same on all; rank r is device r of the
// cluster. A value: a user may read it, edit it and give it back.
//
// Only neighbour stages talk. A stage passes on what later ones read, and in backward adds the gradient that
// comes back from behind to those of its own operators. Devices with the same tied parameters send each other
// their gradients once an iteration.
struct Plan {
  std::string model;   // of the DAG
  std::string method;  // how the stages were found, for readers
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 1;
  // All operators in order, without a gap. The first `places` stages are on different devices, and the
  // others pass those again in turn.
  std::vector<Stage> stages;
  std::vector<int> warm_up{};       // see PipelineShape
  std::vector<Message> messages{};  // that travel compressed; all others are dense

  [[nodiscard]] int places() const;  // devices
  [[nodiscard]] PipelineShape shape() const;
  // Ranks may run together only if it is the same: of the DAG, and of all but `method`.
  [[nodiscard]] std::uint64_t digest(const OperatorDag& dag) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// ConfigError naming what cannot be, and the remedy: stages that leave an operator out, have one twice or
// none; a device that is not in the cluster, or whose stages are not in turn; what check(PipelineShape)
// refuses; a message whose output does not cross that cut, that stays on its device, is listed twice, is of
// integers, or has a ratio below 1 or not finite; and a device whose memory is too small.
void check(const Plan& plan, const StageCosts& costs);

// Says how long the parts of a plan take, which check() accepts. The paper says nothing of tied parameters:
// as in live training, each device that holds some sends its own gradient to each other one, of operators
// that pick rows at most one row for each of all their outputs', without their indices.
PipelineTimes times_of(const Plan& plan, const StageCosts& costs);
// FusionLLM's closed form: every stage and link once, for the first micro-batch; then whatever is busy the
// longest with each further one, a device with all its stages or one direction of a link; and by how
// much the slowest tied gradient comes later than the gradients of the stages in front. It knows no schedule;
// play() does.
double estimated_seconds(const PipelineTimes& times);
// By place: parameters with their copies, and the most activations at once.
std::vector<double> peak_bytes(const Plan& plan, const StageCosts& costs);

// Files, JSON: names of operators and devices in place of numbers.
//   {"format": "dear-pipeline-plan", "version": 1, "model": "gpt2", "method": "op-fence", "schedule": "1f1b",
//    "micro_batches": 8,
//    "stages": [{"device": "a0", "warm_up": 3, "operators": ["transformer.wte", ...]}, ...],
//    "compressed": [{"from_stage": 3, "output": "transformer.h.5.mlp.c_proj", "activation_ratio": 200,
//                    "gradient_ratio": 200}, ...]}
// "warm_up" only where the schedule has one. ConfigError with the name of the file for what is no plan, and
// for a plan of another model or that check() refuses.
std::string to_json(const Plan& plan, const StageCosts& costs);
Plan parse_plan(std::string_view json, const std::string& name_of_source, const StageCosts& costs);
// The micro-batches of a plan file; costs depend on them, so a caller reads them first.
int read_micro_batches(const std::string& path);
Plan read_plan(const std::string& path, const StageCosts& costs);
void write_plan(const Plan& plan, const StageCosts& costs, const std::string& path);  // atomically

}  // namespace dear::methods::pipeline
