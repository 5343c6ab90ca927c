#include "dear/methods/moe/axes.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace dear::methods::moe {
namespace {

constexpr Axis kCapacity = 1;

std::vector<Axis> with_whole(Axis first, int whole) {
  std::vector<Axis> axes(static_cast<std::size_t>(whole) + 1, kWhole);
  axes.front() = first;
  return axes;
}

// Takes the first cut of each instruction that agrees with those before it, and goes back where none does.
class Search {
 public:
  Search(const InstructionGraph& graph, const std::vector<InstructionId>& instructions)
      : graph_(graph),
        instructions_(instructions),
        axis_(graph.values().size()),
        inside_(graph.values().size()) {
    for (const InstructionId id : instructions)
      for (const ValueId value : graph[id].writes) inside_[value] = true;
  }

  bool find(std::size_t at = 0) {
    deepest_ = std::max(deepest_, at);
    if (at == instructions_.size()) return true;
    const Instruction& instruction = graph_[instructions_[at]];
    for (const Cut& cut : instruction.cuts) {
      const std::size_t before = settled_.size();
      if (settle(instruction.reads, cut.reads) && settle(instruction.writes, cut.writes) && find(at + 1))
        return true;
      for (; settled_.size() > before; settled_.pop_back()) axis_[settled_.back()].reset();
    }
    return false;
  }

  [[nodiscard]] std::vector<Axis> axes() const {
    std::vector<Axis> axes;
    for (const std::optional<Axis>& axis : axis_) axes.push_back(axis.value_or(kWhole));
    return axes;
  }
  [[nodiscard]] const Instruction& deepest() const { return graph_[instructions_[deepest_]]; }

 private:
  bool settle(const std::vector<ValueId>& values, const std::vector<Axis>& axes) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::optional<Axis>& axis = axis_[values[i]];
      if (axis && *axis != axes[i]) return false;
      if (axes[i] == kIrregular && !inside_[values[i]]) return false;
      if (axis) continue;
      axis = axes[i];
      settled_.push_back(values[i]);
    }
    return true;
  }

  const InstructionGraph& graph_;
  const std::vector<InstructionId>& instructions_;
  std::vector<std::optional<Axis>> axis_;
  std::vector<bool> inside_;  // by value: an instruction that is cut writes it
  std::vector<ValueId> settled_;
  std::size_t deepest_ = 0;
};

// With a path within the range to or from one of its all-to-alls.
std::vector<InstructionId> connected(const InstructionGraph& graph, const std::vector<InstructionId>& range) {
  std::vector<bool> inside(graph.size()), after(graph.size()), before(graph.size());
  for (const InstructionId id : range) {
    inside[id] = true;
    after[id] = before[id] = graph[id].kind == Kind::all_to_all;
    for (const InstructionId earlier : graph.predecessors(id))
      if (inside[earlier] && after[earlier]) after[id] = true;
  }
  std::vector<InstructionId> found;
  for (std::size_t i = range.size(); i-- > 0;) {
    const InstructionId id = range[i];
    if (before[id])
      for (const InstructionId earlier : graph.predecessors(id)) before[earlier] = true;
    const bool stays_whole = graph[id].kind == Kind::weight_gradient && graph[id].cuts.empty();
    if ((after[id] || before[id]) && !stays_whole) found.push_back(id);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<Cut> cuts_along(const std::vector<Axis>& axes, int reads, int writes) {
  std::vector<Cut> cuts;
  for (const Axis axis : axes)
    cuts.push_back({std::vector<Axis>(static_cast<std::size_t>(reads), axis),
                    std::vector<Axis>(static_cast<std::size_t>(writes), axis)});
  return cuts;
}

std::vector<Cut> cuts_of_matmul(int dimensions, int given) {
  std::vector<Cut> cuts;
  for (Axis axis = 0; axis + 1 < dimensions; ++axis) cuts.push_back({with_whole(axis, given), {axis}});
  return cuts;
}

std::vector<Cut> cuts_of_gate(int given) { return {{with_whole(0, given), {kIrregular}}}; }

// A gate that is not cut has placed all tokens: each part copies its own out of all.
std::vector<Cut> cuts_of_dispatch() {
  return {{{0, kIrregular}, {kIrregular}}, {{0, kWhole}, {kIrregular}}, {{kWhole, kWhole}, {kIrregular}}};
}

std::vector<Cut> cuts_of_buffer(int given, int writes) {
  std::vector<Cut> cuts;
  for (const Axis axis : {kIrregular, kCapacity})
    cuts.push_back({with_whole(axis, given), std::vector<Axis>(static_cast<std::size_t>(writes), axis)});
  return cuts;
}

std::vector<Cut> cuts_of_combine() { return {{{kIrregular, kIrregular}, {0}}, {{kIrregular, kWhole}, {0}}}; }

std::vector<std::int64_t> RangeAxes::dimensions(const InstructionGraph& graph) const {
  std::vector<std::int64_t> found;
  for (ValueId value = 0; value < axis.size(); ++value)
    if (axis[value] >= 0) found.push_back(graph.values()[value].shape[static_cast<std::size_t>(axis[value])]);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

RangeAxes infer_axes(const InstructionGraph& graph, const std::vector<InstructionId>& range) {
  RangeAxes axes{.cut = connected(graph, range), .axis = {}, .refusal = {}};
  if (axes.cut.empty()) {
    axes.refusal = "it has no all-to-all";
    return axes;
  }
  for (const InstructionId id : axes.cut)
    if (graph[id].cuts.empty()) {
      axes.refusal = fmt::format("'{}' must not be cut{}{}", graph[id].name,
                                 graph[id].uncut_reason.empty() ? "" : ": ", graph[id].uncut_reason);
      return axes;
    }
  Search search(graph, axes.cut);
  if (search.find())
    axes.axis = search.axes();
  else
    axes.refusal = fmt::format("'{}' cannot be cut along the axes of what it reads", search.deepest().name);
  return axes;
}

std::string refusal_of(const std::vector<std::int64_t>& dimensions, int parts) {
  for (const std::int64_t dimension : dimensions) {
    if (parts > dimension)
      return fmt::format("{} parts are more than the {} of a dimension that it cuts", parts, dimension);
    if (dimension % parts != 0)
      return fmt::format("{} parts do not divide the {} of a dimension that it cuts", parts, dimension);
    if (2 * parts > dimension)
      return fmt::format("{} parts leave fewer than two of the {} of a dimension that it cuts", parts,
                         dimension);
  }
  return "";
}

}  // namespace dear::methods::moe
