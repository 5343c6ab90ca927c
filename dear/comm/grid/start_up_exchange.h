#pragma once

#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/backend.h"

namespace dear::grid {

// Returns every rank's text, by rank: a few words at the start, before there is a group. ConfigError for one
// of more than 1000 bytes. A collective.
std::vector<std::string> gather_texts(Backend& whole, const std::string& text, Deadline deadline);

// As above, for numbers; every rank gives equally many.
std::vector<std::vector<double>> gather_numbers(Backend& whole, const std::vector<double>& mine,
                                                Deadline deadline);

}  // namespace dear::grid
