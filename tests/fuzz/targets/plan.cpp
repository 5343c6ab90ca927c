#include "dear/methods/pipeline/plan.h"

#include "tests/fuzz/target.h"

#include "dear/methods/pipeline/operators.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::fuzz {
namespace {

namespace pipeline = methods::pipeline;

// The model and the devices of docs/formats.md.
const pipeline::StageCosts& costs() {
  static const pipeline::OperatorDag kModel{
      "a block",
      {{.name = "embedding", .forward_work = 1e9, .parameter_bytes = 400, .output_bytes = 4000},
       {.name = "mask", .inputs = {0}, .output_bytes = 800, .dtype = DType::i64},
       {.name = "linear", .inputs = {0}, .forward_work = 2e9, .parameter_bytes = 4000, .output_bytes = 4000},
       {.name = "sum", .inputs = {1, 2}, .forward_work = 1e9, .output_bytes = 4000},
       {.name = "head", .inputs = {3}, .forward_work = 1e9, .output_bytes = 400, .tied = 0}}};
  static const PairCluster kDevices{
      .name = "two rooms",
      .devices = {{.name = "a", .flops_per_second = 1e12, .memory_bytes = 1 << 20},
                  {.name = "b", .flops_per_second = 2e12, .memory_bytes = 1 << 20}},
      .bytes_per_second = {{0, 1e6}, {2e6, 0}},
      .latency_seconds = {{0, 0.01}, {0.02, 0}}};
  static const pipeline::StageCosts kCosts(kModel, kDevices);
  return kCosts;
}

}  // namespace

// The plan of a pipeline, for a model and devices that are given.
void plan(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return pipeline::parse_plan(text, kSource, costs()); },
      [](const pipeline::Plan& read) {
        if (read.micro_batches < 50) pipeline::play(pipeline::times_of(read, costs()));
        return to_json(read, costs());
      });
}

}  // namespace dear::fuzz
