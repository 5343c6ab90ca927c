#include "dear/predict/sim/jobs.h"

#include <string>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::sim {

std::string_view name_of(Placement placement) { return placement == Placement::packed ? "packed" : "spread"; }

Placement parse_placement(std::string_view text) {
  for (const Placement placement : {Placement::packed, Placement::spread})
    if (name_of(placement) == text) return placement;
  throw ConfigError(fmt::format("there is no placement '{}': choose packed or spread", text));
}

}  // namespace dear::sim
