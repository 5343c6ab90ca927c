#include "dear/methods/moe/partition.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kAllToAllsOfMixture = 2;

std::vector<InstructionId> ids_of(const InstructionGraph& graph, std::size_t begin, std::size_t end) {
  const auto first = graph.order().begin();
  return {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)};
}

// Lays out the instructions of a graph of which some are cut.
class Cutter {
 public:
  Cutter(const InstructionGraph& graph, const PartSeconds& part_seconds)
      : graph_(graph),
        part_seconds_(part_seconds),
        parts_(graph.size(), 1),
        range_(graph.size()),
        first_(graph.size()) {}

  void add(const CutRange& range, std::size_t number) {
    if (range.begin >= range.end || range.end > graph_.size() || range.parts < 1)
      throw ConfigError(
          fmt::format("positions {} to {} of {} are no range to cut into {} parts: give one of at least "
                      "one instruction and part",
                      range.begin, range.end, graph_.size(), range.parts));
    const RangeAxes axes = infer_axes(graph_, ids_of(graph_, range.begin, range.end));
    const std::string refusal =
        axes.refusal.empty() ? refusal_of(axes.dimensions(graph_), range.parts) : axes.refusal;
    if (!refusal.empty())
      throw ConfigError(
          fmt::format("the range from '{}' to '{}' cannot be cut into {} parts, since {}: cut another",
                      graph_[graph_.order()[range.begin]].name, graph_[graph_.order()[range.end - 1]].name,
                      range.parts, refusal));
    for (const InstructionId id : axes.cut) {
      if (range_[id])
        throw ConfigError(fmt::format("'{}' is in two ranges that are cut: separate them", graph_[id].name));
      range_[id] = number;
      parts_[id] = range.parts;
    }
  }

  InstructionGraph build() {
    InstructionId count = 0;
    for (const InstructionId id : graph_.order()) {
      first_[id] = count;
      count += static_cast<InstructionId>(parts_[id]);
    }
    std::vector<Instruction> instructions;
    for (const InstructionId id : graph_.order())
      for (int part = 0; part < parts_[id]; ++part) instructions.push_back(make_part(id, part));
    return InstructionGraph(graph_.values(), std::move(instructions)).reordered(staged());
  }

 private:
  Instruction make_part(InstructionId id, int part) const {
    const Instruction& whole = graph_[id];
    Instruction made{.name = whole.name,
                     .kind = whole.kind,
                     .seconds = parts_[id] == 1 ? whole.seconds : part_seconds_(whole, parts_[id]),
                     .pass = whole.pass,
                     .role = whole.role,
                     .uncut_reason = "the graph is cut already",
                     .part = part,
                     .parts = parts_[id]};
    for (const InstructionId before : graph_.predecessors(id)) {
      if (range_[id] && range_[id] == range_[before])
        made.after.push_back(first_[before] + static_cast<InstructionId>(part));
      else
        append_all(before, made.after);
    }
    for (const InstructionId before : whole.after_previous) append_all(before, made.after_previous);
    return made;
  }

  void append_all(InstructionId id, std::vector<InstructionId>& to) const {
    for (int part = 0; part < parts_[id]; ++part) to.push_back(first_[id] + static_cast<InstructionId>(part));
  }

  std::vector<InstructionId> staged() const {
    std::vector<InstructionId> wanted, stage;
    const auto issue = [&] {
      if (stage.empty()) return;
      for (int part = 0; part < parts_[stage.front()]; ++part)
        for (const InstructionId id : stage) wanted.push_back(first_[id] + static_cast<InstructionId>(part));
      stage.clear();
    };
    for (const InstructionId id : graph_.order()) {
      if (!stage.empty() && (range_[id] != range_[stage.front()] ||
                             communicates(graph_[id].kind) != communicates(graph_[stage.front()].kind)))
        issue();
      if (range_[id])
        stage.push_back(id);
      else
        wanted.push_back(first_[id]);
    }
    issue();
    return wanted;
  }

  const InstructionGraph& graph_;
  const PartSeconds& part_seconds_;
  std::vector<int> parts_;                         // by instruction
  std::vector<std::optional<std::size_t>> range_;  // by instruction; none: it stays whole
  std::vector<InstructionId> first_;               // by instruction: the new id of its first part
};

// The positions from `begin` up to `end` as a graph of their own, with the values that they know.
InstructionGraph excerpt(const InstructionGraph& graph, std::size_t begin, std::size_t end) {
  std::vector<std::optional<InstructionId>> id_in(graph.size());
  std::vector<std::optional<ValueId>> value_in(graph.values().size());
  std::vector<Value> values;
  std::vector<Instruction> instructions;
  for (const InstructionId id : ids_of(graph, begin, end)) {
    Instruction instruction = graph[id];
    instruction.after.clear();
    instruction.after_previous.clear();
    for (const InstructionId before : graph.predecessors(id))
      if (id_in[before]) instruction.after.push_back(*id_in[before]);
    for (std::vector<ValueId>* known : {&instruction.reads, &instruction.writes})
      for (ValueId& value : *known) {
        if (!value_in[value]) {
          value_in[value] = static_cast<ValueId>(values.size());
          values.push_back(graph.values()[value]);
        }
        value = *value_in[value];
      }
    id_in[id] = static_cast<InstructionId>(instructions.size());
    instructions.push_back(std::move(instruction));
  }
  return {std::move(values), std::move(instructions)};
}

class Planner {
 public:
  Planner(const InstructionGraph& graph, const PartSeconds& part_seconds, const PartitionOptions& options)
      : graph_(graph),
        part_seconds_(part_seconds),
        options_(options),
        borders_(group_borders(graph, options)) {}

  Partition run() {
    if (borders_.empty()) return {};
    const std::size_t groups = borders_.size() - 1;
    std::vector<double> best(groups + 1, kInfinity);
    std::vector<CutRange> last(groups + 1);
    std::vector<std::size_t> from(groups + 1);
    best[0] = 0;
    for (std::size_t end = 1; end <= groups; ++end)
      for (std::size_t begin = end; begin-- > 0;) {
        if (all_to_alls(borders_[begin], borders_[end]) > kAllToAllsOfMixture && begin + 1 < end) break;
        const auto [range, seconds] = fastest(borders_[begin], borders_[end]);
        if (best[begin] + seconds >= best[end]) continue;
        best[end] = best[begin] + seconds;
        last[end] = range;
        from[end] = begin;
      }
    Partition partition{.ranges = {}, .seconds = best[groups]};
    for (std::size_t end = groups; end > 0; end = from[end])
      if (last[end].parts > 1) partition.ranges.insert(partition.ranges.begin(), last[end]);
    return partition;
  }

 private:
  [[nodiscard]] int all_to_alls(std::size_t begin, std::size_t end) const {
    int count = 0;
    for (const InstructionId id : ids_of(graph_, begin, end))
      count += graph_[id].kind == Kind::all_to_all ? 1 : 0;
    return count;
  }

  static bool has_gate(const InstructionGraph& range) {
    return std::any_of(range.instructions().begin(), range.instructions().end(),
                       [](const Instruction& instruction) { return instruction.role == Role::gate; });
  }

  [[nodiscard]] std::pair<CutRange, double> fastest(std::size_t begin, std::size_t end) const {
    const InstructionGraph range = excerpt(graph_, begin, end);
    std::pair<CutRange, double> best{{begin, end, 1}, play(range).iteration_seconds};
    const RangeAxes axes = infer_axes(range, range.order());
    if (!axes.refusal.empty() || (!options_.cut_gates && has_gate(range))) return best;
    double before = kInfinity;  // of the k before
    for (int parts = 2; parts <= options_.max_parts; ++parts) {
      if (!refusal_of(axes.dimensions(range), parts).empty()) continue;
      const double seconds = play(cut(range, {{0, range.size(), parts}}, part_seconds_)).iteration_seconds;
      if (seconds >= before) break;
      before = seconds;
      if (seconds < best.second) best = {{begin, end, parts}, seconds};
    }
    return best;
  }

  const InstructionGraph& graph_;
  const PartSeconds& part_seconds_;
  const PartitionOptions& options_;
  std::vector<std::size_t> borders_;
};

// How many instructions of the order are the forward at its beginning.
std::size_t forward_length(const InstructionGraph& graph) {
  std::size_t length = 0;
  while (length < graph.size() && graph[graph.order()[length]].pass == Pass::forward) ++length;
  return length;
}

// For each position of the forward, whether it lies from a dispatch up to its combine.
std::vector<bool> inside_mixture(const InstructionGraph& graph, std::size_t length) {
  std::vector<bool> inside(length);
  bool open = false;
  for (std::size_t at = 0; at < length; ++at) {
    const Role role = graph[graph.order()[at]].role;
    if (role == Role::dispatch) open = true;
    inside[at] = open;
    if (role == Role::combine) open = false;
  }
  return inside;
}

}  // namespace

PartSeconds equal_parts(double inefficiency, double launch_seconds) {
  return [inefficiency, launch_seconds](const Instruction& instruction, int parts) {
    if (instruction.seconds == 0 || parts == 1) return instruction.seconds;
    return instruction.seconds / parts * (1 + inefficiency) + launch_seconds;
  };
}

InstructionGraph cut(const InstructionGraph& graph, const std::vector<CutRange>& ranges,
                     const PartSeconds& part_seconds) {
  Cutter cutter(graph, part_seconds);
  for (std::size_t number = 0; number < ranges.size(); ++number) cutter.add(ranges[number], number);
  return cutter.build();
}

std::vector<std::size_t> group_borders(const InstructionGraph& graph, const PartitionOptions& options) {
  if (options.groups_between < 1 || options.max_parts < 1)
    throw ConfigError(
        fmt::format("{} groups between mixtures and {} parts cannot be: give at least 1 of each",
                    options.groups_between, options.max_parts));
  const std::size_t length = forward_length(graph);
  if (length == 0) return {};
  const std::vector<bool> inside = inside_mixture(graph, length);
  double outside = 0;  // seconds of all that is computed between mixtures
  int mixtures = 0;
  for (std::size_t at = 0; at < length; ++at) {
    const Instruction& instruction = graph[graph.order()[at]];
    if (!inside[at] && !communicates(instruction.kind)) outside += instruction.seconds;
    mixtures += instruction.role == Role::dispatch ? 1 : 0;
  }
  const double most = outside / std::max(mixtures, 1) / options.groups_between;
  std::vector<std::size_t> borders{0};
  double seconds = 0;  // of the group so far
  for (std::size_t at = 1; at < length; ++at) {
    const auto alone = [&](std::size_t position) {
      const Instruction& instruction = graph[graph.order()[position]];
      return !inside[position] && (instruction.role == Role::gate || instruction.cuts.empty());
    };
    const Instruction& before = graph[graph.order()[at - 1]];
    seconds += before.seconds;
    const bool full = !inside[at] && seconds + graph[graph.order()[at]].seconds > most * (1 + 1e-9);
    if (full || alone(at) || alone(at - 1) || inside[at] != inside[at - 1] || before.role == Role::combine) {
      borders.push_back(at);
      seconds = 0;
    }
  }
  borders.push_back(length);
  return borders;
}

Partition choose_partition(const InstructionGraph& graph, const PartSeconds& part_seconds,
                           const PartitionOptions& options) {
  return Planner(graph, part_seconds, options).run();
}

InstructionGraph partition(const InstructionGraph& graph, const PartSeconds& part_seconds,
                           const PartitionOptions& options) {
  const Partition chosen = choose_partition(graph, part_seconds, options);
  return chosen.ranges.empty() ? graph : cut(graph, chosen.ranges, part_seconds);
}

InstructionGraph overlap_experts(const InstructionGraph& graph, int parts, const PartSeconds& part_seconds) {
  if (parts == 1) return graph;
  std::vector<CutRange> ranges;
  std::optional<std::size_t> begin;  // of the last all-to-all, if experts follow it
  bool experts = false;
  for (std::size_t at = 0; at < graph.size(); ++at) {
    const Instruction& instruction = graph[graph.order()[at]];
    if (instruction.kind == Kind::all_to_all) {
      if (begin && experts) ranges.push_back({*begin, at + 1, parts});
      begin = begin && experts ? std::nullopt : std::optional(at);
      experts = false;
    }
    experts = experts || (begin && instruction.role == Role::experts);
  }
  return ranges.empty() ? graph : cut(graph, ranges, part_seconds);
}

}  // namespace dear::methods::moe
