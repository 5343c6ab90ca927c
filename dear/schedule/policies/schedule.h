#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/ids.h"
#include "dear/schedule/graph/graph.h"
#include "dear/schedule/policies/step.h"

namespace dear {

// The work of all ranks of a job in every iteration, and its order. An immutable value that a policy makes
// with a ScheduleBuilder, which checks it. Cheap to move, and safe to read from many threads.
class Schedule {
 public:
  [[nodiscard]] const std::string& policy() const { return policy_; }
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  [[nodiscard]] const std::vector<Lane>& lanes() const { return lanes_; }
  // The order of the steps: what executors run, whatever the work is.
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const std::vector<Edge>& edges() const { return graph_.edges(); }
  [[nodiscard]] const std::vector<StepId>& steps_of(LaneId lane) const { return graph_.steps_of(lane); }
  [[nodiscard]] std::vector<StepId> steps_on(LaneKind kind) const;  // lane by lane
  [[nodiscard]] std::size_t layer_count() const { return forward_of_.size(); }
  [[nodiscard]] std::size_t bucket_count() const { return publishers_of_.size(); }

  [[nodiscard]] StepId forward_of(LayerId layer) const { return forward_of_.at(layer); }
  [[nodiscard]] StepId backward_of(LayerId layer) const { return backward_of_.at(layer); }
  [[nodiscard]] StepId commit() const { return commit_; }
  [[nodiscard]] std::optional<StepId> decision() const { return decision_; }  // its broadcast: decision.h
  // The steps after which the bucket's parameters are whole, one for each chunk of it: the all-gather of
  // parameters (at the end of the iteration, or at the beginning of the next), else the update.
  [[nodiscard]] const std::vector<StepId>& publishers_of(BucketId bucket) const {
    return publishers_of_.at(bucket);
  }
  // The updates of the bucket, one for each chunk: the last steps that read its gradients.
  [[nodiscard]] const std::vector<StepId>& updates_of(BucketId bucket) const {
    return updates_of_.at(bucket);
  }
  // The update of the bucket's first chunk, which is all of a bucket that is not cut.
  [[nodiscard]] StepId update_of(BucketId bucket) const { return updates_of(bucket).front(); }

  // A digest of everything above, of the workload's tensors and of their grouping. Ranks may train together
  // only if their digests are equal.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  friend class ScheduleBuilder;
  Schedule() = default;

  std::string policy_;
  std::vector<Step> steps_;
  std::vector<Lane> lanes_;
  Graph graph_;
  std::vector<StepId> forward_of_, backward_of_;
  std::vector<std::vector<StepId>> publishers_of_, updates_of_;
  StepId commit_ = 0;
  std::optional<StepId> decision_;
  std::uint64_t digest_ = 0;
};

// Lanes whose order is kept by somebody else than the frontier: by the program on the compute lane, by the
// issuer of collectives on network lanes.
struct FreeLanes {
  bool compute = false;
  bool network = false;
};

FreeLaneSet free_lanes(const Schedule& schedule, FreeLanes free);
std::vector<Edge> edges_with_lanes(const Schedule& schedule,
                                   FreeLanes free = {});  // see schedule/graph/graph.h

}  // namespace dear
