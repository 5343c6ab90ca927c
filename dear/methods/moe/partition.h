#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "dear/methods/moe/axes.h"
#include "dear/methods/moe/instructions.h"

// The second pass of Lancet (arXiv 2404.19429, section 4): ranges of the forward are cut into parts of the
// batch, and all-to-alls of one part are hidden under what is computed of others.
namespace dear::methods::moe {

// Seconds of each of so many parts of an instruction.
using PartSeconds = std::function<double(const Instruction& instruction, int parts)>;
// An equal share, by so much longer in parts as smaller kernels are slower, and a launch for each.
PartSeconds equal_parts(double inefficiency, double launch_seconds);

// Positions from `begin` up to `end` of the order, in so many parts.
struct CutRange {
  std::size_t begin = 0, end = 0;
  int parts = 1;
  friend bool operator==(const CutRange&, const CutRange&) = default;
};
// The graph with each range as a pipeline. A stage is a maximal run of instructions that are cut and of one
// lane; its parts are issued one after another. What is not cut keeps its place, and waits for all parts. The
// new instructions wait for one another by id alone, and cannot be cut again. ConfigError, with the reason,
// for a range that cannot be cut so, or that meets another.
InstructionGraph cut(const InstructionGraph& graph, const std::vector<CutRange>& ranges,
                     const PartSeconds& part_seconds);

struct PartitionOptions {
  int max_parts = 8;       // less where memory is short
  int groups_between = 5;  // groups of instructions between two mixtures: ranges begin and end between groups
  bool cut_gates = true;   // those that may be cut
};
struct Partition {
  std::vector<CutRange> ranges;  // those that are cut
  double seconds = 0;            // of the forward, as the sum of its ranges
};
// Where groups begin, ascending, and the end of the forward. A gate is a group; so is all from a dispatch to
// its combine; and what must not be cut. Others are put together up to the mean time between two mixtures
// divided by options.groups_between. Empty for a graph whose order does not begin with a forward.
std::vector<std::size_t> group_borders(const InstructionGraph& graph, const PartitionOptions& options = {});

// T(n) = min over i of T(i) + min over k of P(i, n, k), over groups; P is the time of the range on two lanes.
// A range has one mixture at most. k ascends, skips what divides not all dimensions, and ends at the first
// that is worse. Infinite is P of a range that cannot be cut; ranges without an all-to-all are not cut.
Partition choose_partition(const InstructionGraph& graph, const PartSeconds& part_seconds,
                           const PartitionOptions& options = {});
InstructionGraph partition(const InstructionGraph& graph, const PartSeconds& part_seconds,
                           const PartitionOptions& options = {});

// Hides all-to-alls under experts alone, as Tutel (Hwang et al. 2023, arXiv 2206.03382) and FasterMoE (He et
// al. 2022, doi:10.1145/3503221.3508418) do: every {all-to-all, experts, all-to-all} of both passes in so
// many parts of the capacity. ConfigError where they cannot be.
InstructionGraph overlap_experts(const InstructionGraph& graph, int parts, const PartSeconds& part_seconds);

}  // namespace dear::methods::moe
