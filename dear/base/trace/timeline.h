#pragma once

#include <cstdint>
#include <string>

#include "dear/base/trace/trace.h"

namespace dear {

struct TimelineOptions {
  std::int64_t first_iteration = 0;
  std::int64_t iterations = 0;  // from the first one; 0: all that follow
};

// SVG: a row for each lane of each rank, a bar for each span, coloured by its activity; a tooltip says its
// name, iteration and time. The scale begins with the first span that is drawn. Spans outside of every
// iteration are not drawn. ConfigError where there is nothing to draw.
std::string timeline(const Trace& trace, const TimelineOptions& options = {});

}  // namespace dear
