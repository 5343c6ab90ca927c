#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/group/buffer.h"
#include "dear/comm/group/chunk_rows.h"
#include "dear/comm/group/shard.h"

namespace dear {

// How the thread that runs a collective waits, once a short spin has failed: asleep, or first for a moment by
// yielding its processor, which is quicker where ranks share processors and nothing else is to be done there.
enum class Waiting : std::uint8_t { asleep, yielding };

// The place of a rank's own shard of a view where that is not the view, in memory of anybody's; both pointers
// or none. `from` has this rank's contribution to the shard, and `to`, which may be the same, gets the
// reduction of it. The view's own shard counts for nothing then: what a rank alone reads and writes need not
// be copied into a buffer.
struct OwnShard {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

// One collective as one rank asks for it. Peers compare collective, reduction, count, dtype, root, label, and
// the chunks and width of rows.
struct Request {
  Collective collective = Collective::barrier;
  View view{};
  View output{};     // all_to_all and all_to_all_v only: where the peers' blocks go; must not overlap `view`
  OwnShard own{};    // all_reduce and reduce_scatter only
  ChunkRows rows{};  // all_to_all_v only
  // Sizes of unequal shards of a reduce_scatter, all_gather or all_reduce; null for equal ones. They are
  // alike on all ranks, the caller keeps them until the collective ends, and only a Group::takes_shares()
  // takes them.
  const ShardShares* shares = nullptr;
  Reduction reduction = Reduction::sum;
  int root = 0;             // broadcast and reduce only
  std::int64_t label = -1;  // the caller's number for it (a bucket); -1 for none
  SteadyTime asked{};       // when the caller asked for it: a Group says so; else as the backend comes to it
  Waiting waiting = Waiting::asleep;
  bool timed =
      true;  // whether the caller reads the Timing; else none of it counts, and `asked` is a recent time
};

// Throws a ConfigError when no rank of a group of `ranks` could run the request: a view outside its buffer or
// not on a multiple of its element size, an unknown root, a reduction that elements of its type have not
// (obstacle_to()), blocks or chunks that do not come out even, counts of rows that are missing or have no
// room, an output over the input, an own shard elsewhere where there is none or of which one pointer is
// missing, or anything but an all-gather of a shared buffer.
void validate(const Request& request, int ranks);

// The shard of a rank in the view.
[[nodiscard]] inline Range shard_of(const Request& request, int ranks, int rank) {
  return request.shares == nullptr
             ? shard_of(request.view.count, request.view.dtype, ranks, rank)
             : shard_of(request.view.count, request.view.dtype, ranks, rank, request.shares);
}

// The chunks of an all_to_all_v that was found valid.
comm::ChunkPlaces places_of(const Request& request, int ranks);

// Describes a request for messages: "reduce-scatter of 1000 fp32, sum (label 3)".
std::string describe(const Request& request);

// When a collective ran. `asked`: the last rank had asked for it; `begin`: all ranks had come to it, which
// may be later, for each was busy with the one before. `end` lies ahead where it is modelled: the result is
// there, and counts from then on.
struct Timing {
  SteadyTime begin{};
  SteadyTime end{};
  SteadyTime asked{};
};

// The timing of a collective that begins now, as far as this rank alone knows. The clock costs as much as a
// small message does, so it is read only for a request that is `timed`.
Timing begin_now(const Request& request);
// The time at which a collective ends, under the same rule.
SteadyTime end_now(const Request& request);

}  // namespace dear
