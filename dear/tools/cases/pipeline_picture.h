#pragma once

#include <string>

#include "dear/tools/cases/pipeline_cases.h"

namespace dear::cases {

// SVG of a plan: a row for each stage with its device, site, operators, memory and how long it computes for a
// micro-batch; between rows what the link carries each way, and for how long, on the same scale.
std::string picture_of(const PipelineCase& one);
// SVG of one iteration: a row for each device, and for each link that it sends over.
std::string timeline_of(const PipelineCase& one);

}  // namespace dear::cases
