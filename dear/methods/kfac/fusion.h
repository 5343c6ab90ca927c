#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/methods/kfac/costs.h"

// Fusion decides which factors travel together: groups of consecutive factors, in the order in which they are
// computed.
namespace dear::methods::kfac {

// A factor of one direction (all A of a forward pass, or all G of a backward pass), as fusion sees it.
struct ReadyFactor {
  std::int64_t elements = 0;       // that travel
  double seconds_until_ready = 0;  // from the factor before it, or from the start of the pass
};

// The number of factors in each group, in order; they add up to all.
using Groups = std::vector<std::size_t>;

// When the last group has travelled, from the start of the pass on, if groups travel one after another, each
// from the moment when its last factor is ready.
double finish_seconds(const std::vector<ReadyFactor>& factors, const Groups& groups, const LinearCost& cost);

Groups each_alone(std::size_t factors);
Groups all_together(std::size_t factors);
// A group is closed as soon as it has at least so many elements.
Groups by_threshold(const std::vector<ReadyFactor>& factors, std::int64_t elements);
// Fuses as Horovod does (Sergeev and Del Balso 2018, arXiv 1802.05799): a thread looks every `cycle_seconds`
// for what has become ready since, and sends it in groups of at most so many elements, or of one factor.
Groups by_cycle(const std::vector<ReadyFactor>& factors, double cycle_seconds, std::int64_t elements);

// The rule of Shi et al. 2021 (arXiv 2107.06533, optimal tensor fusion): front to back, a factor joins the
// next one if that is ready before this one has travelled, and before its start or within a start-up time
// after it. Not optimal, in spite of its name: see fuse_exactly().
Groups fuse_by_rule(const std::vector<ReadyFactor>& factors, const LinearCost& cost);

// The groups that finish first, of all there are, and of those the fewest, since each takes a start-up from
// what travels beside it. Dynamic programming over the last border: an earlier end of what comes before is
// never worse. In the square of the number of factors for each group.
Groups fuse_exactly(const std::vector<ReadyFactor>& factors, const LinearCost& cost);

}  // namespace dear::methods::kfac
