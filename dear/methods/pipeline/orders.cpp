#include "dear/methods/pipeline/orders.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"

namespace dear::methods::pipeline {
namespace {

using Order = std::vector<Task>;

// With several stages a place: all micro-batches through one stage after the other.
Order gpipe(const PipelineShape& shape, int place) {
  Order order;
  for (int stage = place; stage < shape.stages(); stage += shape.places)
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back({TaskKind::forward, stage, m});
  for (int stage = shape.stages() - shape.places + place; stage >= 0; stage -= shape.places)
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back({TaskKind::backward, stage, m});
  return order;
}

Order one_f_one_b(const PipelineShape& shape, int stage) {
  const int warm_up = shape.warm_up[index_of(stage)];
  Order order;
  for (int m = 0; m < warm_up; ++m) order.push_back({TaskKind::forward, stage, m});
  for (int m = 0; m < shape.micro_batches; ++m) {
    order.push_back({TaskKind::backward, stage, m});
    if (m + warm_up < shape.micro_batches) order.push_back({TaskKind::forward, stage, m + warm_up});
  }
  return order;
}

Order zb_h1(const PipelineShape& shape, int stage) {
  const int delay = shape.warm_up.front() - shape.warm_up[index_of(stage)];
  Order order;
  for (const Task& task : one_f_one_b(shape, stage)) {
    if (task.kind == TaskKind::forward) {
      order.push_back(task);
      continue;
    }
    const int m = task.micro_batch;
    order.push_back({TaskKind::input_gradient, stage, m});
    if (m >= delay) order.push_back({TaskKind::weight_gradient, stage, m - delay});
  }
  for (int m = std::max(0, shape.micro_batches - delay); m < shape.micro_batches; ++m)
    order.push_back({TaskKind::weight_gradient, stage, m});
  return order;
}

// Micro-batches in groups of as many as there are places; a group passes all stages of a place, then comes
// the next.
Order interleaved(const PipelineShape& shape, int place) {
  const int places = shape.places, rounds = shape.stages_of_place, all = shape.micro_batches * rounds;
  const int warm_up = std::min(all, (rounds - 1) * places + 2 * (places - 1 - place));
  const auto task = [&](TaskKind kind, int number) {
    const int forward_round = number / places % rounds;
    const int round = kind == TaskKind::forward ? forward_round : rounds - 1 - forward_round;
    return Task{kind, round * places + place, number / (places * rounds) * places + number % places};
  };
  Order order;
  for (int i = 0; i < warm_up; ++i) order.push_back(task(TaskKind::forward, i));
  for (int i = 0; i < all; ++i) {
    if (i + warm_up < all) order.push_back(task(TaskKind::forward, i + warm_up));
    order.push_back(task(TaskKind::backward, i));
  }
  return order;
}

void check_warm_up(const PipelineShape& shape) {
  if (shape.warm_up.size() != index_of(shape.stages()))
    throw ConfigError(fmt::format("{} stages have {} numbers of warm-up: give each stage one", shape.stages(),
                                  shape.warm_up.size()));
  for (std::size_t stage = 0; stage < shape.warm_up.size(); ++stage) {
    if (shape.warm_up[stage] < 1 || shape.warm_up[stage] > shape.micro_batches)
      throw ConfigError(
          fmt::format("the warm-up of stage {} is {}: give a number from 1 to the {} micro-batches", stage,
                      shape.warm_up[stage], shape.micro_batches));
    if (stage > 0 && shape.warm_up[stage] > shape.warm_up[stage - 1])
      throw ConfigError(
          fmt::format("stage {} has a warm-up of {} and stage {} in front of it one of {}, so that each "
                      "would wait for the "
                      "other: give it at most as many",
                      stage, shape.warm_up[stage], stage - 1, shape.warm_up[stage - 1]));
  }
}

}  // namespace

const std::vector<ScheduleInfo>& schedule_kinds() {
  static const std::vector<ScheduleInfo> kTable = {
      {ScheduleKind::gpipe, "gpipe", "all forwards, then all backwards"},
      {ScheduleKind::one_f_one_b, "1f1b", "a forward, then a backward, behind a warm-up planned by link"},
      {ScheduleKind::interleaved, "interleaved", "1f1b with several stages on each device"},
      {ScheduleKind::zb_h1, "zb-h1", "1f1b whose gradients of weights fill the bubbles"}};
  return kTable;
}

std::string_view name_of(ScheduleKind kind) {
  return schedule_kinds().at(static_cast<std::size_t>(kind)).name;
}

ScheduleKind find_schedule_kind(std::string_view name) {
  return find_named(schedule_kinds(), name, "schedule of a pipeline").kind;
}

bool plans_warm_up(ScheduleKind kind) {
  return kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::zb_h1;
}

std::string_view name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::forward:
      return "forward";
    case TaskKind::backward:
      return "backward";
    case TaskKind::input_gradient:
      return "input gradient";
    case TaskKind::weight_gradient:
      break;
  }
  return "weight gradient";
}

std::vector<int> least_warm_up(int places, int micro_batches) {
  std::vector<int> warm_up;
  for (int stage = 0; stage < places; ++stage) warm_up.push_back(std::min(micro_batches, places - stage));
  return warm_up;
}

void check(const PipelineShape& shape) {
  if (shape.places < 1 || shape.stages_of_place < 1)
    throw ConfigError(
        fmt::format("a pipeline of {} devices with {} stages each has no stage: give at least 1",
                    shape.places, shape.stages_of_place));
  if (shape.micro_batches < 1)
    throw ConfigError(
        fmt::format("a pipeline cannot run {} micro-batches: give at least 1", shape.micro_batches));
  if (plans_warm_up(shape.schedule)) {
    if (shape.stages_of_place > 1)
      throw ConfigError(
          fmt::format("schedule {} has one stage on each device, not {}: take interleaved or gpipe",
                      name_of(shape.schedule), shape.stages_of_place));
    check_warm_up(shape);
  } else if (!shape.warm_up.empty()) {
    throw ConfigError(fmt::format("schedule {} has no warm-up to choose: leave it out, or take 1f1b or zb-h1",
                                  name_of(shape.schedule)));
  }
  if (shape.schedule != ScheduleKind::interleaved) return;
  if (shape.stages_of_place == 1)
    throw ConfigError(
        "schedule interleaved needs several stages on each device: give at least 2, or take 1f1b");
  if (shape.micro_batches % shape.places != 0)
    throw ConfigError(
        fmt::format("schedule interleaved cannot run {} micro-batches on {} devices: give a multiple",
                    shape.micro_batches, shape.places));
}

std::vector<std::vector<Task>> orders(const PipelineShape& shape) {
  check(shape);
  const auto make = [&](int place) {
    switch (shape.schedule) {
      case ScheduleKind::gpipe:
        return gpipe(shape, place);
      case ScheduleKind::one_f_one_b:
        return one_f_one_b(shape, place);
      case ScheduleKind::interleaved:
        return interleaved(shape, place);
      case ScheduleKind::zb_h1:
        break;
    }
    return zb_h1(shape, place);
  };
  std::vector<Order> all;
  for (int place = 0; place < shape.places; ++place) all.push_back(make(place));
  return all;
}

std::vector<int> most_held(const PipelineShape& shape) {
  std::vector<int> most(index_of(shape.stages())), now(most.size());
  for (const Order& order : orders(shape)) {
    for (const Task& task : order) {
      const std::size_t stage = index_of(task.stage);
      if (task.kind == TaskKind::forward) most[stage] = std::max(most[stage], ++now[stage]);
      if (releases(task.kind)) --now[stage];
    }
  }
  return most;
}

std::vector<std::int64_t> most_held_bytes(const PipelineShape& shape,
                                          const std::vector<std::int64_t>& bytes_of_stage) {
  std::vector<std::int64_t> most;
  for (const Order& order : orders(shape)) {
    most.push_back(0);
    std::int64_t now = 0;
    for (const Task& task : order) {
      if (task.kind == TaskKind::forward) now += bytes_of_stage.at(index_of(task.stage));
      most.back() = std::max(most.back(), now);
      if (releases(task.kind)) now -= bytes_of_stage.at(index_of(task.stage));
    }
  }
  return most;
}

}  // namespace dear::methods::pipeline
