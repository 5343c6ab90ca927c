#pragma once

#include <cstdint>
#include <vector>

#include "dear/methods/rounds/settings.h"

namespace dear::methods::rounds {

// A client that takes part in a round, and its column of the round's mask.
struct Sender {
  int client = 0;
  int column = 0;
  friend bool operator==(const Sender&, const Sender&) = default;
};

// All ranks know this of a round before it begins.
struct Round {
  std::int64_t number = 0;
  std::vector<Sender> senders;  // ascending by client
  std::int64_t steps = 1;       // local steps of each of them
};

// Draws a round: the first clients of a random order of all that answer, dealt to columns in that order, so
// cohort, columns and owners of a coordinate are uniform among those that answer. A client that is absent is
// replaced by the next in the order. Where fewer answer than the cohort: an algorithm that divides by those
// that answer goes on with them; the theorem of shifts is of whole cohorts, so such a round has no senders.
Round draw_round(const Settings& settings, int clients, std::int64_t number);

}  // namespace dear::methods::rounds
