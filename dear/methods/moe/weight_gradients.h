#pragma once

#include <vector>

#include "dear/methods/moe/instructions.h"

// The first pass of Lancet (arXiv 2404.19429, Algorithm 1): all-to-alls of the backward are hidden under
// weight gradients, for which nothing of the backward waits.
namespace dear::methods::moe {

// Lists what may run under an all-to-all: instructions of the compute lane with a path neither to it nor from
// it. Updates, what a reduction of dense gradients leads to, and what waits for nothing and is no weight
// gradient (zeros, slices) are left out. In order.
struct Overlappable {
  InstructionId all_to_all = 0;
  std::vector<InstructionId> instructions;
};
std::vector<Overlappable> overlappable(const InstructionGraph& graph);  // all-to-alls in order

// Two refinements of the published code, which the paper's text does not have.
struct WeightGradientOptions {
  // An all-to-all under which something lies takes no more once the best fit is over twice as long as what is
  // left of it.
  bool leave_what_is_too_long = true;
  // An instruction that can run under an all-to-all and under no later one goes there, whether or not it
  // fits.
  bool take_the_last_chance = true;
};

// A Hiding says which instructions go right behind which all-to-all; each goes behind one at most.
struct Hiding {
  struct Under {
    InstructionId all_to_all = 0;
    std::vector<InstructionId> instructions;  // in this order
  };
  std::vector<Under> under;   // every all-to-all, in order
  double hidden_seconds = 0;  // the sum over all-to-alls of what is hidden: its seconds at most
};
// By best fit: each all-to-all, in order, takes what is nearest in time to what is left of it, the first of
// several, until nothing is left of it or for it. The sum it seeks is that of a generalised assignment
// problem, which is NP-hard; in the worst case it finds a vanishing part of it.
Hiding hide_by_best_fit(const InstructionGraph& graph, const WeightGradientOptions& options = {});
// The most that any choice hides, whatever waits for what: to judge the other by. In 3^n for n instructions:
// ConfigError for more than kMostToSearch of them.
inline constexpr std::size_t kMostToSearch = 13;
Hiding hide_by_search(const InstructionGraph& graph);

// The graph with its instructions behind the all-to-alls; itself where there is nothing to hide.
InstructionGraph hide(const InstructionGraph& graph, const Hiding& hiding);
InstructionGraph schedule_weight_gradients(const InstructionGraph& graph,
                                           const WeightGradientOptions& options = {});

}  // namespace dear::methods::moe
