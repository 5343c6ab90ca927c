#pragma once

#include <functional>

#include "dear/collective/environment.h"
#include "dear/measure/contest.h"

// A bench whose ranks a launcher has started, on one host or on many: every rank holds the contest, as
// programs of nccl-tests do, and all come to the same outcome.
namespace dear::measure {

// The backends of init() by their own names, and "auto" for its choice.
const std::vector<Contestant>& launched_backends();

// Why this rival cannot be measured under this launcher; "" when it can.
std::string unfit(const Contestant& rival, const LaunchEnvironment& environment);

// The first entrant is one of launched_backends(); its group is also how ranks agree, so it must not fail.
// The clocks of hosts differ: a repetition lasts as long as on the rank where it lasts longest.
ContestOutcome hold_launched_contest(const ContestSettings& settings, const LaunchEnvironment& environment,
                                     const std::function<void(std::int64_t bytes)>& progress);

}  // namespace dear::measure
