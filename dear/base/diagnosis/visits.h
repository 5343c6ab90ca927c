#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/recorder/record.h"

namespace dear::diagnose {

// A collective as one rank came to it. Events are those of the record, which must outlive it.
struct Visit {
  const recorder::Event* begun = nullptr;
  const recorder::Event* ended = nullptr;  // or failed
};
// By group and number. Events of a collective lie in a ring: its beginning may be gone.
using Visits = std::map<std::pair<std::uint16_t, std::int64_t>, Visit>;
Visits visits_of(const recorder::Record& record);

// "all-gather of 4096 bytes (label 3)".
std::string describe(const recorder::Event& event);

// The ranks on each side of "collective 98: ranks 1, 2 ask for a barrier, rank 0 for an all-gather: ...";
// none of another sentence.
std::vector<std::vector<int>> sides_in(const std::string& sentence);
// Returns the ranks that ask, by such a sentence, for the end of their training within a step.
std::vector<int> ended_in(const std::string& sentence);

// Standing holds the last events of a rank that are not over, as its record has them.
struct Standing {
  const recorder::Event* in = nullptr;     // a collective that has not ended, or has failed
  const recorder::Event* files = nullptr;  // of a checkpoint, which are not done
  std::int64_t last = 0;                   // the time of its last event
};
Standing standing_of(const recorder::Record& record);

// Adds ranks that the sentence does not name, each to the side that its record agrees with. A rank that
// agrees with no side's record is of the one side without a record. Standings by rank.
void add_others(std::vector<std::vector<int>>& sides, const std::vector<Standing>& standings);
// The smaller sides of those that differ; all where they are equally large. Ranks ascending.
std::vector<int> fewest_of(const std::vector<std::vector<int>>& sides);

}  // namespace dear::diagnose
