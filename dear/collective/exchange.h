#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/collective/group.h"

namespace dear {

// Every rank's text, by rank. For small things said at start: names, digests, settings.
std::vector<std::string> all_gather_text(const Group& group, const std::string& text);

// Proves that all ranks hold the same `value` of `thing` ("schedule"). MismatchError, on every rank, that
// names the first rank that differs from rank 0 and both values.
void agree(const Group& group, const std::string& thing, const std::string& value);

}  // namespace dear
