#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/fusion/planned.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// The memory of which a rank keeps only a shard between iterations.
struct Residence {
  ProcessGroup shards = ProcessGroup::all;  // the ranks that have one shard each: all, or those of a node
  bool optimizer_sharded = false;
  bool gradients_sharded = false;
  bool parameters_sharded = false;
};

// How a policy turns a workload and a grouping into a schedule, and what it can reach at best.
//
// [Note: orders found at run time] Some systems choose the order of collectives, or what travels together,
// while they run. Here it is found when the schedule or the grouping is made, by playing one backward pass
// with the workload's times and those of the collectives, and fixed then: what they would settle on if every
// iteration took the same time.
struct Policy {
  std::string_view name;
  std::string_view summary;          // one line
  std::string_view source;           // paper or system, with DOI or arXiv number
  std::string_view leaves_out = {};  // what of the original is not modelled
  bool trains = false;               // whether DataParallel runs it; other policies can only be simulated
  // Whether its own scheduler holds each layer's forward in the program until the layer's parameters have
  // come, which takes CollectiveTimes::hold_seconds on the compute lane.
  bool holds_layers = false;
  // Whether chunks of a bucket are on their way together (seconds_of_joint).
  bool joins_chunks = false;
  Residence residence = {};
  Overlap overlap = Overlap::all_reduce;  // for which buckets are planned
  double traffic = 1;  // bytes sent in an iteration, in multiples of one all-reduce of everything
  Schedule (*make)(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes& times);
  // How its authors group tensors by default.
  Grouping (*usual_grouping)(const Workload& workload, const cost::CollectiveTimes& times);
  // Closed form for the iteration time when buckets are infinitely fine: f, b forward and backward, r the
  // all-reduce of everything, all in seconds.
  double (*bound)(double f, double b, double r);
  // Seconds of each collective beyond its transfer; null for none.
  double (*overhead_seconds)(const cost::CollectiveTimes& times) = nullptr;
};

const std::vector<Policy>& policies();             // the one table
const Policy& find_policy(std::string_view name);  // ConfigError naming those there are
// Finds as find_policy() does; ConfigError also for a policy that can only be simulated.
const Policy& find_training_policy(std::string_view name);
std::vector<Policy> training_policies();

// The policies among which the first steps choose, in the order given, for "auto=NAME,NAME,..." (two or
// more); for "auto" those that ask nothing of the program: dear and wfbp. None for the name of a policy.
// ConfigError for a candidate that is named twice, or cannot train.
std::vector<std::string> automatic_candidates(std::string_view policy);

// The schedule of a policy; times of collectives that are not given count as 0.
Schedule make_schedule(const Policy& policy, const Workload& workload, const Grouping& grouping,
                       const cost::CollectiveTimes& times = {});

// The floor of synchronous policies when nothing but the network and the computation themselves count, which
// training with gradients that are one iteration old reaches: max(f + b, r).
double stale_gradient_floor(double f, double b, double r);

// [Note: lanes of the policies]
// dear, dear-replicated, dear-eager, bytescheduler and us-byte: updates stand on a lane of their own, so that
// they overlap with the next forward. All others: on the compute lane, after the commit: step() waits for
// each reduction and updates.
Schedule make_serial(const Workload& workload, const Grouping& grouping,
                     const cost::CollectiveTimes& times = {});
Schedule make_wfbp(const Workload& workload, const Grouping& grouping,
                   const cost::CollectiveTimes& times = {});
Schedule make_dear_replicated(const Workload& workload, const Grouping& grouping,
                              const cost::CollectiveTimes& times = {});
Schedule make_dear(const Workload& workload, const Grouping& grouping,
                   const cost::CollectiveTimes& times = {});
// Synchronous SGD as all others: each forward waits for the parameters of its own layers, made from this
// iteration's gradients. But reduce-scatters, updates and all-gathers go as the profile (times of layers in
// the workload, `times`) lets them end soonest (schedule/fusion/eager_order.h), many of them under the
// backward. Without a profile the order is that of dear.
//
// It gives up what needs all gradients, or the program, between backward and step(): clipping by the norm of
// all gradients, a learning rate that changes there, reading or changing gradients or parameters there, a
// second backward through the same graph. See [Note: updates ahead of the commit].
//
// The profile must be the same on all ranks, to the bit: rank 0's. On the same buckets no slower than dear
// and, where an all-reduce takes what its halves take and updates take nothing, than wfbp, if times are those
// of the profile. least_seconds() is what no order on these buckets goes below; where buckets are fine and
// messages start at once, that is max(f + b, r) but for the first bucket, of which nothing hides either half,
// and the ends: nothing can travel before the first backward, nor under the last forward.
Schedule make_dear_eager(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times = {});

}  // namespace dear
