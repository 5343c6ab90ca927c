#include "dear/methods/moe/passes.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/moe/dense_gradients.h"

namespace dear::methods::moe {
namespace {

// Parts that do not divide the capacity are passed over.
Passed with_best_expert_parts(const InstructionGraph& graph, const PartSeconds& part_seconds,
                              std::int64_t iterations) {
  std::optional<Passed> best;
  for (const int parts : kExpertParts) {
    try {
      Passed passed{.graph = overlap_experts(graph, parts, part_seconds), .expert_parts = parts};
      passed.times = play(passed.graph, iterations);
      if (!best || passed.times.iteration_seconds < best->times.iteration_seconds) best = std::move(passed);
    } catch (const ConfigError&) {
      continue;
    }
  }
  return std::move(*best);  // one part is the graph itself
}

}  // namespace

const std::vector<Passes>& all_passes() {
  static const std::vector<Passes> kTable{
      {.name = "unoptimised"},
      {.name = "experts", .experts = true},
      {.name = "dw", .weight_gradients = true, .dense = true},
      {.name = "partition", .partition = true, .dense = true},
      {.name = "lancet", .weight_gradients = true, .partition = true, .dense = true}};
  return kTable;
}

const std::vector<std::string>& live_overlaps() {
  static const std::vector<std::string> kNames{"none", "experts", "lancet"};
  return kNames;
}

const Passes& find_passes(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Passes& passes : all_passes()) {
    if (passes.name == name) return passes;
    names.push_back(passes.name);
  }
  throw ConfigError(fmt::format("there are no passes '{}'{} choose one of {}", name,
                                did_you_mean(name, names), fmt::join(names, ", ")));
}

int Passed::most_parts() const {
  int most = expert_parts;
  for (const CutRange& range : ranges) most = std::max(most, range.parts);
  return most;
}

Passed run(const InstructionGraph& graph, const Passes& passes, const PartSeconds& part_seconds,
           const PassOptions& options) {
  if (passes.experts && passes.partition)
    throw ConfigError("all-to-alls are hidden under experts alone or under all that can be cut: choose one");
  const Hiding hiding =
      passes.weight_gradients ? hide_by_best_fit(graph, options.weight_gradients) : Hiding{};
  const InstructionGraph given = hide(graph, hiding);
  const auto with_dense = [&](Passed passed) {
    if (passes.dense) passed.graph = place_dense(passed.graph);
    passed.hiding = hiding;
    passed.times = play(passed.graph, options.iterations);
    return passed;
  };
  if (passes.experts) return with_dense(with_best_expert_parts(given, part_seconds, options.iterations));
  Passed best = with_dense({.graph = given});
  if (!passes.partition || graph.all_to_alls().empty()) return best;
  std::vector<std::vector<CutRange>> tried;
  for (const bool cut_gates : {true, false})
    for (int parts = options.partition.max_parts; parts > 1; parts /= 2) {
      PartitionOptions limits = options.partition;
      limits.max_parts = parts;
      limits.cut_gates = cut_gates && options.partition.cut_gates;
      const std::vector<CutRange> ranges = choose_partition(given, part_seconds, limits).ranges;
      if (ranges.empty() || std::find(tried.begin(), tried.end(), ranges) != tried.end()) continue;
      tried.push_back(ranges);
      Passed passed = with_dense({.graph = cut(given, ranges, part_seconds), .ranges = ranges});
      if (passed.times.iteration_seconds < best.times.iteration_seconds) best = std::move(passed);
    }
  return best;
}

}  // namespace dear::methods::moe
