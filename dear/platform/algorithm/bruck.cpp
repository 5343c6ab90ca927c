#include <algorithm>

#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {

// After k rounds rank r has the blocks of ranks r, ..., r + 2^k - 1, and gets as many more from rank r + 2^k:
// the logarithm of any number of ranks, rounded up, where doubling needs two rounds more for one that is no
// power.
Program bruck_all_gather(int ranks) {
  Program program = empty_program("bruck all-gather", Collective::all_gather, ranks, ranks);
  int round = 0;
  for (int held = 1; held < ranks; held *= 2, ++round) {
    program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      program.send(round, rank, (rank + ranks - held) % ranks,
                   around(rank, std::min(held, ranks - held), ranks));
    }
  }
  return program;
}

}  // namespace dear::algorithm
