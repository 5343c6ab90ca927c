#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/moe/instructions.h"
#include "dear/methods/moe/partition.h"
#include "dear/methods/moe/two_lanes.h"
#include "dear/methods/moe/weight_gradients.h"

namespace dear::methods::moe {

// The passes that a way to train has; each can be left out. In this order.
struct Passes {
  std::string_view name;
  bool weight_gradients = false;
  bool partition = false;
  bool experts = false;  // overlap_experts() with the best of kExpertParts; not with `partition`
  bool dense = false;    // place_dense()
};
inline constexpr int kExpertParts[] = {1, 2, 4, 8};

// "unoptimised"; "experts", as Tutel and FasterMoE; "dw" and "partition", each pass of Lancet alone; and
// "lancet". The last three place dense collectives.
const std::vector<Passes>& all_passes();
const Passes& find_passes(std::string_view name);  // ConfigError that lists them

// Names of what a live training hides all-to-alls under: "none", "experts", "lancet".
const std::vector<std::string>& live_overlaps();

struct PassOptions {
  WeightGradientOptions weight_gradients{};
  PartitionOptions partition{};
  std::int64_t iterations = 1;  // that play() plays to judge by: several where iterations follow one another
};
struct Passed {
  InstructionGraph graph;
  Hiding hiding{};                 // of the graph as given: which weight gradients go under which all-to-all
  std::vector<CutRange> ranges{};  // of hide(graph, hiding), that are cut into parts of the batch
  int expert_parts = 1;
  Times times{};

  [[nodiscard]] int most_parts() const;  // of a range of the forward, or of the experts
};
// The graph after the passes. It is called on one rank, with averaged times; all ranks run what it answers,
// and compare the digest. A graph without an all-to-all is left as it is, but for its dense collectives.
//
// choose_partition() knows nothing of what is before and behind a range. So of its answers with as many parts
// as the options allow, with half as many and so on, with gates that are cut and without, and of none, the
// one is taken whose whole iteration is shortest.
Passed run(const InstructionGraph& graph, const Passes& passes, const PartSeconds& part_seconds,
           const PassOptions& options = {});

}  // namespace dear::methods::moe
