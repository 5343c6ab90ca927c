#include "dear/predict/plan/gain.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dear::plan {

std::vector<Gain::Part> Gain::parts() const {
  std::vector<Part> parts{{schedule, Cause::schedule},
                          {sharding, Cause::sharding},
                          {collectives, Cause::collectives},
                          {fusion, Cause::fusion}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return std::abs(a.seconds) > std::abs(b.seconds); });
  return parts;
}

std::string_view name_of(Gain::Cause cause) {
  constexpr std::array<std::string_view, 4> kNames{"its schedule", "sharding the update",
                                                   "what its collectives take", "its buckets"};
  return kNames.at(static_cast<std::size_t>(cause));
}

Gain gain_over(const Contender& one, const Contender& other, const Workload& workload, const Cluster& cluster,
               const cost::ClusterTimesOptions& times, const sim::EvaluateOptions& options) {
  const cost::CollectiveTimes usual = cost::times_on(cluster, times);
  const auto seconds = [&](const Policy& policy, const Grouping& grouping, const Workload& job,
                           const cost::CollectiveTimes& collectives) {
    return sim::evaluate(policy, job, grouping, cluster, collectives, options).iteration.seconds;
  };
  // A shard takes as long then as all parameters.
  const Residence& residence = one.policy.residence;
  Workload whole = workload;
  if (residence.optimizer_sharded)
    whole.update_seconds *= residence.shards == ProcessGroup::node ? usual.ranks_of_node() : usual.ranks;
  cost::CollectiveTimes even = usual;
  even.reduce_scatter =
      even.all_gather = [all_reduce = usual.all_reduce](std::int64_t bytes) { return all_reduce(bytes) / 2; };

  const double mine = seconds(one.policy, one.grouping, workload, usual);
  const double theirs = seconds(other.policy, other.grouping, workload, usual);
  const double unsharded = seconds(one.policy, one.grouping, whole, usual);
  const double alike = seconds(one.policy, one.grouping, whole, even);
  const double fusion = std::max(0.0, theirs - seconds(other.policy, one.grouping, workload, usual));
  return {.over = std::string(other.policy.name),
          .seconds = theirs - mine,
          .schedule = theirs - fusion - alike,
          .sharding = unsharded - mine,
          .collectives = alike - unsharded,
          .fusion = fusion};
}

}  // namespace dear::plan
