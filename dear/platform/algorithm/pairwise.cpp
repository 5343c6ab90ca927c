#include <utility>

#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

// Everyone has `each` blocks for each rank, from block `first` on; in round k all of them go to the rank
// k + 1 further on.
void add_exchange(Program& program, int first, int each) {
  const int ranks = program.ranks;
  const auto blocks_of = [&](int rank) {
    return std::vector<Range>{{.begin = first + rank * each, .end = first + (rank + 1) * each}};
  };
  program.copies.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int block = first + rank * each; block < first + (rank + 1) * each; ++block) {
      program.copies[static_cast<std::size_t>(rank)].push_back({.from = block, .to = program.blocks + block});
    }
  }
  for (int round = 0; round < ranks - 1; ++round) {
    std::vector<Part>& parts = program.add_round();
    for (int rank = 0; rank < ranks; ++rank) {
      const int to = (rank + round + 1) % ranks;
      parts[static_cast<std::size_t>(rank)].sends.push_back({.peer = to, .blocks = blocks_of(to)});
      std::vector<Range> places = blocks_of(rank);
      for (Range& place : places)
        place = {.begin = program.blocks + place.begin, .end = program.blocks + place.end};
      parts[static_cast<std::size_t>(to)].receives.push_back({.peer = rank, .blocks = std::move(places)});
    }
  }
}

}  // namespace

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

Program pairwise_all_to_all(int ranks, int chunks) {
  Program program = empty_program("pairwise all-to-all", Collective::all_to_all, ranks, ranks * chunks);
  add_exchange(program, 0, chunks);
  return program;
}

Program pairwise_all_to_all_v(int ranks, int chunks) {
  Program program =
      empty_program("pairwise all-to-all-v", Collective::all_to_all_v, ranks, ranks * (1 + chunks));
  add_exchange(program, 0, 1);
  add_exchange(program, ranks, chunks);
  return program;
}

}  // namespace dear::algorithm
