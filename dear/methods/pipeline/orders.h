#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// Which device computes what, in which order: the schedules of pipelines.
namespace dear::methods::pipeline {

enum class ScheduleKind : std::uint8_t {
  gpipe,        // all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)
  one_f_one_b,  // a forward, then a backward, behind a warm-up (Narayanan et al. 2019, arXiv 1806.03377)
  interleaved,  // the same with several stages a device (Narayanan et al. 2021, arXiv 2104.04473)
  zb_h1         // gradients of weights fill the bubbles (ZB-H1; Qi et al. 2024, arXiv 2401.10241)
};
struct ScheduleInfo {
  ScheduleKind kind;
  std::string_view name;  // "gpipe", "1f1b", "interleaved", "zb-h1"
  std::string_view summary;
};
const std::vector<ScheduleInfo>& schedule_kinds();
std::string_view name_of(ScheduleKind kind);
ScheduleKind find_schedule_kind(std::string_view name);  // ConfigError that lists them
bool plans_warm_up(ScheduleKind kind);                   // 1f1b, zb-h1

enum class TaskKind : std::uint8_t { forward, backward, input_gradient, weight_gradient };
std::string_view name_of(TaskKind kind);  // "input gradient"

struct Task {
  TaskKind kind = TaskKind::forward;
  int stage = 0;
  int micro_batch = 0;
  friend bool operator==(const Task&, const Task&) = default;
};
// Whether it is the last use of what the forward kept.
inline bool releases(TaskKind kind) {
  return kind == TaskKind::backward || kind == TaskKind::weight_gradient;
}

// A place is a device of the pipeline: stage s has place s % places, so that stages pass all places in turn.
struct PipelineShape {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int places = 1;
  int stages_of_place = 1;
  int micro_batches = 1;
  // By stage, of schedules that plan it: forwards before the first backward. The deeper, the longer the way
  // to the last stage and back may take; each holds the activations of one more micro-batch.
  std::vector<int> warm_up{};
  [[nodiscard]] int stages() const { return places * stages_of_place; }
  [[nodiscard]] int place_of(int stage) const { return stage % places; }
};

// min(micro-batches, places - s) for stage s: enough where links take no time.
std::vector<int> least_warm_up(int places, int micro_batches);

// ConfigError naming what is wrong: no place, stage or micro-batch; several stages a place where the schedule
// has one (1f1b, zb-h1), or one where it has several (interleaved); micro-batches that are no multiple of the
// places (interleaved); a warm-up that is not one number a stage, not from 1 to the micro-batches, or larger
// than that of the stage in front, which then both would wait for each other.
void check(const PipelineShape& shape);

// By place: each stage and micro-batch has one forward and one backward, or one gradient of each kind.
// Backwards come in the order of micro-batches, so that gradients add up as in one process. check()s.
//
// zb-h1: stage s puts off the gradients of weights by as many micro-batches as the first stage has warm-up
// more. So every stage holds at most that of the first.
std::vector<std::vector<Task>> orders(const PipelineShape& shape);

// The most micro-batches that a stage holds at once, from forward to the end of the backward: by stage.
std::vector<int> most_held(const PipelineShape& shape);
// The most bytes that a place holds at once, where each micro-batch of a stage holds so many.
std::vector<std::int64_t> most_held_bytes(const PipelineShape& shape,
                                          const std::vector<std::int64_t>& bytes_of_stage);

}  // namespace dear::methods::pipeline
