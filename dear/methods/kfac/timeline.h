#pragma once

#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/methods/kfac/iteration.h"
#include "dear/methods/kfac/plan.h"
#include "dear/schedule/conductor/drive.h"

namespace dear::methods::kfac {

// The name of a step in a trace, with the names of layers: "inverse of A of conv1".
std::string describe(const Work& work, const Job& job, const Plan& plan);

// The spans of rank `rank`, as any executor writes them; those in which it did nothing are left out.
// `network` says how it was modelled: see sim::describe().
Trace to_trace(const Job& job, const Plan& plan, const Iteration& iteration,
               const std::vector<conductor::StepSpan>& spans, const std::string& network, int rank = 0);

}  // namespace dear::methods::kfac
