#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/range.h"

// Collectives as data: who sends which block to whom in which round.
//
// A vector is cut into blocks, numbered from 0. In a round every rank reads its blocks as they stand at the
// start of the round, and what it receives counts from the end of it; so all of a round may go on at once,
// and rounds follow each other on each rank without a barrier. Programs say nothing of bytes, types or time:
// transports carry them, the verifier proves them, the simulator plays them.
namespace dear::algorithm {

// One message as one of its two ends sees it. Both list as many blocks, in the order in which they travel;
// between two ranks the messages of a round match in the order in which they are listed.
struct BlockMessage {
  int peer = 0;
  std::vector<Range> blocks;
};

// What one rank does in a round.
struct Part {
  std::vector<BlockMessage> sends;
  std::vector<BlockMessage> receives;  // take the place of what stood there
  std::vector<BlockMessage> reduces;   // are added to what stands there, in the order listed
};

// A block of one's own to another place, before the first round.
struct Copy {
  int from = 0;
  int to = 0;
};

struct Program {
  std::string name;  // "ring all-gather"
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int blocks = 1;                         // of the vector; an all-to-all has as many again for what comes
  int root = 0;                           // of a broadcast or reduce
  std::vector<std::vector<Copy>> copies;  // [rank]; empty when there are none
  std::vector<std::vector<Part>> rounds;  // [round][rank]

  // A part for every rank; nothing in them.
  std::vector<Part>& add_round();
  // In `round`, which exists.
  void send(int round, int from, int to, std::vector<Range> blocks);
  void send_to_be_added(int round, int from, int to, std::vector<Range> blocks);
};

// Without a round yet; its root is rank 0.
Program empty_program(std::string name, Collective collective, int ranks, int blocks);

// Blocks begin, ..., begin + count - 1, counted around a ring of `blocks`: one range, or two.
std::vector<Range> around(int begin, int count, int blocks);

// Every message in the other direction and added, the last round first. Where each rank receives each block
// once, messages of a block are a tree; backwards they collect what it handed out. So an all-gather becomes a
// reduce-scatter, and a broadcast a reduce.
Program reversed(const Program& gather_or_broadcast, std::string name);

// One after the other, on the same ranks and blocks: a reduce-scatter and an all-gather, or a reduce and a
// broadcast, make an all-reduce.
Program concatenated(const Program& first, const Program& second, std::string name);

// Adds the rounds of `inner` to `outer` from `round` on. Its rank i is ranks[i] there, its block b is
// blocks[b].
void embed(const Program& inner, const std::vector<int>& ranks, const std::vector<std::vector<Range>>& blocks,
           int round, Program& outer);

}  // namespace dear::algorithm
