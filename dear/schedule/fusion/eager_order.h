#pragma once

#include <cstdint>
#include <vector>

#include "dear/schedule/fusion/grouping.h"

namespace dear::fusion {

// How much shorter, as a part of the time, an order must be to count as better; less is rounding.
inline constexpr double kLeastGain = 1e-9;

// A chunk, and the times of its steps in seconds.
struct TimedChunk {
  Chunk chunk{};
  double ready = 0;  // when its gradients are there, counted from the begin of the backward pass
  double scatter = 0;
  double update = 0;
  double gather = 0;
  double forward_left =
      0;  // from the begin of the first layer that reads its parameters to the end of forward
};

enum class Half : std::uint8_t { scatter, gather };
// The reduce-scatter or the all-gather of a chunk.
struct HalfTransfer {
  std::uint32_t chunk;  // index
  Half half;
  friend bool operator==(const HalfTransfer&, const HalfTransfer&) = default;
};

// An order of the network lane, in which reduce-scatters and all-gathers mix, and of the update lane.
struct EagerOrder {
  std::vector<HalfTransfer> network;
  std::vector<std::uint32_t> updates;  // indices of chunks
  double seconds = 0;                  // from the begin of a backward pass to the end of the next forward
};

// The best order found for `chunks`, which stand in forward order. `compute_seconds` is forward and backward
// together. The order is never worse than all reduce-scatters back to front and then all all-gathers front to
// back (as in dear), nor than both halves of each chunk together, back to front (as in wfbp); among orders
// that are equally good, the first of these is taken. All machines with the same arithmetic find the same
// order. Takes some milliseconds for 600 chunks.
//
// [Note: an order for the network] Every all-gather is needed by a forward, and every reduce-scatter waits
// for a backward, so nothing of one iteration's communication meets that of the next: it is enough to look at
// the time from the begin of a backward to the end of the next forward. That is a problem of one machine
// (the network) whose jobs have heads (when they may begin) and tails (what must still follow):
//   the reduce-scatter of k  from ready_k on;              its update, its all-gather, forward_left_k follow
//   the all-gather of k      when k is updated, so not before ready_k + scatter_k + update_k;
//                            forward_left_k follows
// and its length is the largest sum of an end and the tail behind it, or all computation. Taking of what may
// begin the job with the longest tail (Schrage 1971, unpublished; see Carlier 1982,
// doi:10.1016/S0377-2217(82)80007-6) gives reduce-scatters as they become ready, all-gathers into the idle
// gaps, and after the backward what the forward meets first. It is best if jobs can be interrupted. They
// cannot, so the order is improved by Carlier's branching on the job that holds up a more urgent one: that is
// put behind those it holds up (the network waits), or before. A bounded number of branches is tried.
EagerOrder eager_order(const std::vector<TimedChunk>& chunks, double compute_seconds);

// The seconds that `order` takes.
double seconds_of(const EagerOrder& order, const std::vector<TimedChunk>& chunks, double compute_seconds);

// The seconds of the best order that is found without branching, in a tenth of the time.
double quick_eager_seconds(const std::vector<TimedChunk>& chunks, double compute_seconds);

// Returns what no order of these chunks goes below, even if transfers could be interrupted: the largest, over
// every set of transfers, of the earliest head in it, the sum of the set, and the shortest tail behind it
// (Jackson's preemptive schedule, which attains it); or all computation. Two of these sets say where the time
// goes when it is more than max(f + b, r):
//   the two halves of the first chunk   f + b + scatter + update + gather: nothing hides them
//   all transfers                        r, and the backward before the first, and the forward after the last
double least_seconds(const std::vector<TimedChunk>& chunks, double compute_seconds);

}  // namespace dear::fusion
