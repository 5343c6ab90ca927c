#pragma once

#include <memory>
#include <vector>

#include "dear/transport/channels.h"

namespace dear::transport {

// The channels between some of the ranks of others: member i is rank members[i] there. The rank that calls
// is one of them; each rank is in one subset at most, for tags and failures are those of the whole. Messages
// of errors name ranks of the whole.
std::unique_ptr<Channels> make_subset(std::unique_ptr<Channels> whole, std::vector<int> members);

}  // namespace dear::transport
