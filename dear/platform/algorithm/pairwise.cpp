#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {

// In round k everyone sends to the rank k + 1 further on, and receives from the one as far behind.
Program pairwise_all_gather(int ranks) {
  Program program = empty_program("pairwise all-gather", Collective::all_gather, ranks, ranks);
  for (int round = 0; round < ranks - 1; ++round) {
    program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      program.send(round, rank, (rank + round + 1) % ranks, {{.begin = rank, .end = rank + 1}});
    }
  }
  return program;
}

Program pairwise_all_to_all(int ranks) {
  Program program = empty_program("pairwise all-to-all", Collective::all_to_all, ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    program.copies.push_back({{.from = rank, .to = ranks + rank}});
  }
  for (int round = 0; round < ranks - 1; ++round) {
    std::vector<Part>& parts = program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      const int to = (rank + round + 1) % ranks;
      parts[static_cast<std::size_t>(rank)].sends.push_back(
          {.peer = to, .blocks = {{.begin = to, .end = to + 1}}});
      parts[static_cast<std::size_t>(to)].receives.push_back(
          {.peer = rank, .blocks = {{.begin = ranks + rank, .end = ranks + rank + 1}}});
    }
  }
  return program;
}

}  // namespace dear::algorithm
