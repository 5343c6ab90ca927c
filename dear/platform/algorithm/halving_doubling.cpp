#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

// [Note: leaders] Doubling pairs ranks whose numbers differ in one bit, so it wants a power of two of them.
// With P ranks and 2^k the largest power in P, each of the first P - 2^k leaders acts for itself and for the
// next rank, its follower, and the other leaders for themselves. The blocks of leaders v, ..., w stand
// together.
struct Leaders {
  explicit Leaders(int ranks) : ranks(ranks) {
    while (2 * count <= ranks) {
      count *= 2;
    }
    followed = ranks - count;
  }

  [[nodiscard]] int rank_of(int leader) const { return leader < followed ? 2 * leader : leader + followed; }
  // Returns the blocks of leaders [first, last).
  [[nodiscard]] std::vector<Range> blocks_of(int first, int last) const {
    return {{.begin = rank_of(first), .end = last == count ? ranks : rank_of(last)}};
  }

  int ranks;
  int count = 1;
  int followed = 0;  // the first so many have a follower
};

// Leaders that have the blocks of their own get those of all. `has_already`: leader, and how many each holds
// so far; whether it has those of its partner's side, too.
template <typename HasAlready>
void double_up(const Leaders& leaders, Program& program, HasAlready has_already) {
  for (int held = 1; held < leaders.count; held *= 2) {
    program.add_round();
    for (int leader = 0; leader < leaders.count; ++leader) {
      const int first = leader / held * held;
      if (has_already(leader ^ held, held)) {
        continue;
      }
      program.send(static_cast<int>(program.rounds.size()) - 1, leaders.rank_of(leader),
                   leaders.rank_of(leader ^ held), leaders.blocks_of(first, first + held));
    }
  }
}

}  // namespace

Program doubling_all_gather(int ranks) {
  Program program = empty_program("doubling all-gather", Collective::all_gather, ranks, ranks);
  const Leaders leaders(ranks);
  if (leaders.followed > 0) {
    program.add_round();
    for (int leader = 0; leader < leaders.followed; ++leader) {
      const int follower = leaders.rank_of(leader) + 1;
      program.send(0, follower, follower - 1, {{.begin = follower, .end = follower + 1}});
    }
  }
  double_up(leaders, program, [](int, int) { return false; });
  if (leaders.followed > 0) {
    program.add_round();
    for (int leader = 0; leader < leaders.followed; ++leader) {
      const int follower = leaders.rank_of(leader) + 1;
      program.send(static_cast<int>(program.rounds.size()) - 1, follower - 1, follower,
                   around(follower + 1, ranks - 1, ranks));
    }
  }
  return program;
}

// A scatter over a binomial tree, then an all-gather (van de Geijn): each rank sends and receives the vector
// about once, in twice the logarithm of rounds.
Program scatter_broadcast(int ranks, int /*blocks*/) {
  Program program = empty_program("halving-doubling broadcast", Collective::broadcast, ranks, ranks);
  const Leaders leaders(ranks);
  for (int half = leaders.count / 2; half > 0; half /= 2) {
    program.add_round();
    for (int leader = 0; leader < leaders.count; leader += 2 * half) {
      program.send(static_cast<int>(program.rounds.size()) - 1, leaders.rank_of(leader),
                   leaders.rank_of(leader + half), leaders.blocks_of(leader + half, leader + 2 * half));
    }
  }
  // Who handed out the other half in the scatter keeps it: nobody receives a block twice (see reversed()).
  double_up(leaders, program, [](int leader, int held) { return leader % (2 * held) == 0; });
  if (leaders.followed > 0) {
    program.add_round();
    for (int leader = 0; leader < leaders.followed; ++leader) {
      program.send(static_cast<int>(program.rounds.size()) - 1, leaders.rank_of(leader),
                   leaders.rank_of(leader) + 1, {{.begin = 0, .end = ranks}});
    }
  }
  return program;
}

}  // namespace dear::algorithm
