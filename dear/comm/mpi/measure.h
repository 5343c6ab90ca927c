#pragma once

#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/mpi/channels/mpi.h"
#include "dear/comm/mpi/measurements.h"

namespace dear::backends {

struct MeasureOptions {
  bool sums_go_around = false;  // see [Note: sums across hosts]
  Deadline deadline;            // for every wait
};

// A collective and a size to measure.
struct Case {
  Collective collective = Collective::all_gather;
  int size_class = 0;
};
// All cases, in the order in which they are worth measuring.
std::vector<Case> all_cases(bool across_hosts);

// Tries, with vectors of fp32, the algorithms of these cases, in rounds and in turns; judgement.h says which
// one is the best. Takes a second, across hosts eight. Gives `known` with what was found in the place of what
// it said of these cases, and nothing of those for which there was no time. Every rank finds the same.
Measurements measure(channels::Mpi& mpi, const std::vector<Case>& cases, Measurements known,
                     const MeasureOptions& options);

struct Checked {
  Measurements measurements;  // with the times of those that are faster than they were
  std::vector<Case> again;    // those to be measured again: slower than they were, or overtaken
  int faster = 0;
};
// Looks a few times at each best algorithm that was found, and at its second. Takes a tenth of a second,
// across hosts two; where there is no time the measurement stands. Every rank finds the same.
Checked check(channels::Mpi& mpi, const Measurements& measurements, const MeasureOptions& options);

}  // namespace dear::backends
