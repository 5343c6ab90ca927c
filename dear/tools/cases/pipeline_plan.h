#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/tools/cases/pipeline_cases.h"

// A plan of a pipeline beside its rivals, and why it takes as long as it does.
namespace dear::cases {

// The parts of a plan that may bound its iteration.
struct PipelineBounds {
  // The place that computes the longest for a micro-batch, with all its stages.
  int slowest_place = 0;
  double compute_seconds = 0;
  // The way between places that is busy the longest for a micro-batch; none where nothing travels.
  int link_from = -1, link_to = -1;
  double link_seconds = 0;
  double first_seconds = 0;                  // the way of one micro-batch through all stages and back
  double exchange_seconds = 0;               // the longest exchange of tied gradients, once an iteration
  int exchange_from = -1, exchange_to = -1;  // its places
};
PipelineBounds bounds_of(const PipelineCase& one);

struct PipelineAnswer {
  // The plan that was asked for, then every planner without compression and with it, the fastest first.
  PipelineCase plan;
  std::vector<PipelineCase> rivals;
  std::vector<LeftOutPlan> left_out;  // rivals
  PipelineBounds bounds;
  std::vector<std::string> why;      // sentences: the slowest stage and link, and what bounds the iteration
  std::vector<std::string> verdict;  // sentences: what planning and compression gain
};
// `names` asks for one plan. Where it asks for no compression, rivals have ada-top-k with its ratio.
// ConfigError as find_plans() and make_plan() of methods::pipeline.
PipelineAnswer plan_pipeline(const PipelineJob& job, const PipelinePlanNames& names);

// Parameters of its operators; one that is tied to another's has none of its own.
std::int64_t parameter_bytes_of(const PipelineCase& one, std::size_t stage);

std::string to_json(const PipelineAnswer& answer);

}  // namespace dear::cases
