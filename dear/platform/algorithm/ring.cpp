#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {

// Everyone passes on to the right what came from the left in the round before.
Program ring_all_gather(int ranks) {
  Program program = empty_program("ring all-gather", Collective::all_gather, ranks, ranks);
  for (int round = 0; round < ranks - 1; ++round) {
    program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      program.send(round, rank, (rank + 1) % ranks, around(rank - round, 1, ranks));
    }
  }
  return program;
}

// Everyone adds what came from the left and passes it on: the sum of block b starts at rank b + 1. Read
// backwards, the all-gather would go to the left: then each half would find the connections that it uses idle
// since the other began, and TCP would open their windows anew.
Program ring_reduce_scatter(int ranks) {
  Program program = empty_program("ring reduce-scatter", Collective::reduce_scatter, ranks, ranks);
  for (int round = 0; round < ranks - 1; ++round) {
    program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      program.send_to_be_added(round, rank, (rank + 1) % ranks, around(rank - round - 1, 1, ranks));
    }
  }
  return program;
}

// The all-gather as a line: block b leaves rank r in round b + r.
Program chain_broadcast(int ranks, int blocks) {
  Program program = empty_program("ring broadcast", Collective::broadcast, ranks, blocks);
  for (int round = 0; ranks > 1 && round < blocks + ranks - 2; ++round) {
    program.add_round();
    for (int rank = 0; rank < ranks - 1; ++rank) {
      const int block = round - rank;
      if (block >= 0 && block < blocks) {
        program.send(round, rank, rank + 1, {{.begin = block, .end = block + 1}});
      }
    }
  }
  return program;
}

}  // namespace dear::algorithm
