#pragma once

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

// [Note: one copy] Ranks of one host may share one copy of the parameters in memory. Rank q then updates its
// shard of a bucket in memory that every rank p reads, and p must not see that too early, however slow it is.
//
// Claim: the memory of bucket b changes only within p's window of b, on every rank p. The window opens at p's
// commit and closes when p learns that b is whole (its publisher, the all-gather, is done). Without sharing
// it is the same window in which p's own copy changes. So a program that is right without one copy is right
// with it, whatever it reads in its backward and between backward and step(): weight decay in the loss, a
// norm, a second backward, a weight that a detached branch still needs. What it reads within the window
// waits, as it always did.
//
// Proof, for iteration i. Let C be the last reduce-scatter on the network lane. with_one_copy() adds the edge
// commit -> C, and C -> U for every update U.
//  1. No write before p's window opens. A collective of a group that shares memory ends on no rank before all
//     have come to it (Group::shares_memory). Rank p comes to C(i) after its commit(i), by the first edge; q
//     starts U(b, i) after C(i) has ended on q, by the second. So commit(i) on p is before U(b, i) on q, for
//     all p and q. At its commit p marks b as not whole, before it hands C(i) to the network.
//  2. No write after it closes. p's all-gather(b, i) ends after every q has come to it, which q does after
//     its U(b, i). The next write is U(b, i + 1), by 1. after commit(i + 1) on p, which opens the next
//     window; p commits only when every window of i is closed (step() waits for that).
//  3. Nobody else writes. q's update lane writes q's shard and no other element, and shards are disjoint. New
//     values that the program gives a parameter (a checkpoint) travel the same way: U writes them, each rank
//     its shard. What the program writes in place is refused at the next step, before it commits.
// Memory order follows the same path: each "before" above is a release of one thread, and an acquire of the
// next (the conductor's mutex, the queues, the barrier in shared memory).
//
// It costs no collective: updates stand in forward order, so all of them wait for C, which reduces bucket 0,
// anyway; and backward ends with the gradients of C, so what C loses of its overlap is what the program does
// between backward and step().
//
// Under updates ahead of the commit (dear-eager) p's window opens earlier, when its last gradient of b is
// there, and p holds b from then on: [Note: buckets that change before the commit]. There the reduce-scatter
// of b itself is C: p comes to it after it held b, and U(b, i) follows it. No edge is added. The chunks of a
// bucket are held together, and each is reduced, updated and gathered as a bucket is.
//
// Whatever breaks it is refused: an update of whole buckets (every rank writes every element), a group
// without shared memory, and a modelled network, whose ranks stand for hosts of their own.
namespace dear {

// ConfigError that names the policy and those that can share one copy, unless all updates of the policy are
// of shards.
void require_one_copy_policy(const Policy& policy);

// `schedule` with the edges above added. ScheduleError for a schedule that updates whole buckets, or
// publishes them in another way than by an all-gather of parameters.
Schedule with_one_copy(const Schedule& schedule, const Workload& workload, const Grouping& grouping);

}  // namespace dear
