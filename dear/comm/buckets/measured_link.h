#pragma once

#include <cstdint>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/platform/cluster/network.h"

namespace dear::buckets {

// The network of a group as it is here and now, by a reduce-scatter and an all-gather of a few sizes. All
// ranks together; none fails where others go on, so times that no link explains are taken as bandwidth alone.
Link measure_link(Group& group);

// The two halves of measure_link(), for collectives that no Group carries: measured_elements() are the sizes,
// in elements of fp32; link_of() is the link that explains the median seconds of a reduce-scatter and an
// all-gather of each size.
const std::vector<std::int64_t>& measured_elements();
Link link_of(const std::vector<double>& seconds, int ranks);

}  // namespace dear::buckets
