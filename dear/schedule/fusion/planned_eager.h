#pragma once

#include <vector>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/layer_units.h"

namespace dear::fusion {

// group_planned() for Overlap::eager; `seeds` are borders to begin with. For its own use.
//
// [Note: borders of an eager order] What an order makes of buckets has no recursion over borders, so these
// are sought: from several beginnings (the seeds, one size for all, a bucket a layer) the best six are
// improved by one border more, less or elsewhere at a time, as long as the iteration gets shorter, or the
// network is busy for less in the same. The order is the one of longest tails, without branches. Then large
// buckets are cut into chunks where that makes the iteration shorter by more than a thousandth. The work is
// bounded, and the result the same every time.
Grouping group_for_eager(const Workload& workload, const LayerUnits& units,
                         const cost::CollectiveTimes& times, const std::vector<Borders>& seeds);

}  // namespace dear::fusion
