#include "dear/methods/moe/instructions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"

namespace dear::methods::moe {
namespace {

void check_seconds(const Instruction& instruction) {
  if (std::isfinite(instruction.seconds) && instruction.seconds >= 0) return;
  throw ConfigError(
      fmt::format("instruction '{}' takes {} s, which is no time: measure it, or give seconds of 0 or more",
                  instruction.name, instruction.seconds));
}

void check_ids(const Instruction& instruction, const std::vector<std::uint32_t>& ids, std::size_t count,
               const char* what) {
  for (const std::uint32_t id : ids)
    if (id >= count)
      throw ScheduleError(fmt::format("instruction '{}' names {} {}, but there are {}: name one below that",
                                      instruction.name, what, id, count));
}

std::vector<bool> reachable(const InstructionGraph& graph, InstructionId from, bool backwards) {
  std::vector<Edge> edges;
  for (InstructionId id = 0; id < graph.size(); ++id)
    for (const InstructionId before : graph.predecessors(id))
      edges.push_back(backwards ? Edge{id, before} : Edge{before, id});
  std::vector<bool> reached;
  for (const std::uint8_t crossings : dear::graph::Precedence(graph.size(), edges).crossings_from(from))
    reached.push_back(crossings == 0);
  return reached;
}

}  // namespace

bool communicates(Kind kind) {
  return kind == Kind::all_to_all || kind == Kind::all_gather || reduces_dense(kind);
}
bool reduces_dense(Kind kind) { return kind == Kind::reduce_scatter || kind == Kind::all_reduce; }

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::compute:
      return "compute";
    case Kind::weight_gradient:
      return "weight gradient";
    case Kind::update:
      return "update";
    case Kind::all_to_all:
      return "all-to-all";
    case Kind::reduce_scatter:
      return "reduce-scatter";
    case Kind::all_gather:
      return "all-gather";
    case Kind::all_reduce:
      break;
  }
  return "all-reduce";
}

InstructionGraph::InstructionGraph(std::vector<Value> values, std::vector<Instruction> instructions,
                                   std::vector<InstructionId> order)
    : values_(std::move(values)), instructions_(std::move(instructions)), order_(std::move(order)) {
  for (const Instruction& instruction : instructions_) {
    check_seconds(instruction);
    check_ids(instruction, instruction.after, size(), "instruction");
    check_ids(instruction, instruction.after_previous, size(), "instruction");
    check_ids(instruction, instruction.reads, values_.size(), "value");
    check_ids(instruction, instruction.writes, values_.size(), "value");
    check_cuts(instruction);
  }
  find_predecessors();
  if (order_.empty())
    for (InstructionId id = 0; id < size(); ++id) order_.push_back(id);
  check_ids({.name = "order"}, order_, size(), "instruction");

  std::vector<Edge> edges;
  for (InstructionId id = 0; id < size(); ++id)
    for (const InstructionId before : predecessors_[id]) edges.push_back({before, id});
  std::string names;
  for (const StepId step : dear::graph::Precedence(size(), edges).cycle_within_iteration())
    names += fmt::format("'{}' -> ", instructions_[step].name);
  if (!names.empty())
    throw ScheduleError(
        fmt::format("instructions wait for each other in a circle, {}...: let one of them not wait", names));

  std::vector<bool> issued(size());
  for (const InstructionId id : order_) {
    if (issued[id])
      throw ScheduleError(
          fmt::format("the order has instruction '{}' twice: name each once", instructions_[id].name));
    issued[id] = true;
    for (const InstructionId before : predecessors_[id])
      if (!issued[before])
        throw ScheduleError(
            fmt::format("the order has instruction '{}' before '{}', which it waits for: exchange them",
                        instructions_[id].name, instructions_[before].name));
  }
  if (order_.size() != size())
    throw ScheduleError(
        fmt::format("the order has {} of {} instructions: name each once", order_.size(), size()));
}

void InstructionGraph::check_cuts(const Instruction& instruction) const {
  const auto fits = [&](const std::vector<Axis>& axes, const std::vector<ValueId>& of) {
    if (axes.size() != of.size()) return false;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i] < kIrregular || axes[i] >= std::ssize(values_[of[i]].shape)) return false;
    return true;
  };
  for (const Cut& cut : instruction.cuts)
    if (!fits(cut.reads, instruction.reads) || !fits(cut.writes, instruction.writes) ||
        std::count(cut.writes.begin(), cut.writes.end(), kWhole) != 0)
      throw ScheduleError(
          fmt::format("a cut of instruction '{}' does not fit its values: give each that it reads or "
                      "writes an axis of its shape, and cut all that it writes",
                      instruction.name));
}

void InstructionGraph::find_predecessors() {
  std::vector<std::optional<InstructionId>> writer(values_.size());
  for (InstructionId id = 0; id < size(); ++id)
    for (const ValueId value : instructions_[id].writes) {
      if (writer[value])
        throw ScheduleError(
            fmt::format("value '{}' is written by '{}' and '{}': give each a value of its own",
                        values_[value].name, instructions_[*writer[value]].name, instructions_[id].name));
      writer[value] = id;
    }
  for (const Instruction& instruction : instructions_) {
    std::vector<InstructionId> before = instruction.after;
    for (const ValueId value : instruction.reads)
      if (writer[value]) before.push_back(*writer[value]);
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    predecessors_.push_back(std::move(before));
  }
}

std::vector<InstructionId> InstructionGraph::all_to_alls() const {
  std::vector<InstructionId> found;
  for (const InstructionId id : order_)
    if (instructions_[id].kind == Kind::all_to_all) found.push_back(id);
  return found;
}

InstructionGraph InstructionGraph::reordered(const std::vector<InstructionId>& wanted) const {
  std::vector<InstructionId> order, waiting;
  std::vector<bool> issued(size());
  const auto issue_if_ready = [&](InstructionId id) {
    for (const InstructionId before : predecessors_.at(id))
      if (!issued[before]) return false;
    issued[id] = true;
    order.push_back(id);
    return true;
  };
  for (const InstructionId id : wanted) {
    check_ids({.name = "order"}, {id}, size(), "instruction");
    if (!issue_if_ready(id)) {
      waiting.push_back(id);
      continue;
    }
    // One that waits may release another that was to come before it.
    for (bool released = true; released;) {
      const auto end = std::remove_if(waiting.begin(), waiting.end(), issue_if_ready);
      released = end != waiting.end();
      waiting.erase(end, waiting.end());
    }
  }
  order.insert(order.end(), waiting.begin(), waiting.end());
  return {values_, instructions_, std::move(order)};
}

std::uint64_t InstructionGraph::digest() const {
  Digest digest;
  for (const InstructionId id : order_) {
    const Instruction& instruction = instructions_[id];
    digest.add(id).add(instruction.name).add(static_cast<std::uint64_t>(instruction.kind));
    digest.add(static_cast<std::uint64_t>(instruction.part))
        .add(static_cast<std::uint64_t>(instruction.parts));
    for (const std::vector<InstructionId>* ids : {&predecessors_[id], &instruction.after_previous}) {
      digest.add(ids->size());
      for (const InstructionId before : *ids) digest.add(before);
    }
  }
  return digest.value();
}

std::vector<bool> reached_from(const InstructionGraph& graph, InstructionId id) {
  return reachable(graph, id, false);
}
std::vector<bool> leading_to(const InstructionGraph& graph, InstructionId id) {
  return reachable(graph, id, true);
}

}  // namespace dear::methods::moe
