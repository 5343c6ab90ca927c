#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/kfac/costs.h"

// Fusion decides which factors travel together: groups of consecutive factors, in the order in which they are
// computed.
namespace dear::kfac {

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

// The rule of Shi et al. 2021 (arXiv 2107.06533, optimal tensor fusion): front to back, a factor joins the
// next one if that is ready before this one has travelled, and before its start or within a start-up time
// after it. Not optimal, in spite of its name: see fuse_exactly().
Groups fuse_by_rule(const std::vector<ReadyFactor>& factors, const LinearCost& cost);

// The groups that finish first, of all there are: dynamic programming over the last border, in the square of
// the number of factors. An earlier end of what comes before is never worse, so one number a border is
// enough. Among equal ends fewer groups.
Groups fuse_exactly(const std::vector<ReadyFactor>& factors, const LinearCost& cost);

}  // namespace dear::kfac
