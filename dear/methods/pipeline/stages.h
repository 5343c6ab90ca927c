#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/methods/pipeline/operators.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::methods::pipeline {

// Operators that follow each other in the order of the DAG, on one device.
struct Stage {
  int device = 0;   // of the cluster
  Range operators;  // ids
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Seconds of one micro-batch on a device.
struct StageSeconds {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  [[nodiscard]] double backward() const { return input_gradient + weight_gradient; }
  [[nodiscard]] double all() const { return forward + backward(); }
};

// One message: it has the link for `busy_seconds`, and is there `latency_seconds` later, while the next one
// may be under way.
struct Transfer {
  double busy_seconds = 0;
  double latency_seconds = 0;
  double bytes = 0;  // counted where links share wires
  [[nodiscard]] double seconds() const { return busy_seconds + latency_seconds; }
};
// The message of so many bytes from one device to another takes no time where there are none, or to itself.
Transfer transfer_of(const PairCluster& cluster, int from, int to, double bytes);

struct MemoryRule {
  // Copies of the parameters in memory: the parameters, their gradients, the states of the optimiser.
  double copies_of_parameters = 3;
};

// Says what operators cost on the devices of a cluster. It refers to both, which outlive it. All of it is
// read in constant time from sums over the operators, but for memory, which also looks at ties. ConfigError
// for a memory rule of less than 1 or more than 1000 copies.
class StageCosts {
 public:
  StageCosts(const OperatorDag& dag, const PairCluster& cluster, const MemoryRule& memory = {});

  [[nodiscard]] const OperatorDag& dag() const { return *dag_; }
  [[nodiscard]] const PairCluster& cluster() const { return *cluster_; }
  // The work of operators, of forward and backward, on no device in particular.
  [[nodiscard]] double work(const Range& operators) const;
  [[nodiscard]] StageSeconds seconds(const Range& operators, int device) const;

  // Count what stays in memory, with a copy of parameters that operators are tied to and that lie elsewhere;
  // and what each forward adds until its backward: kept activations and what came over the cut in front.
  [[nodiscard]] std::int64_t resident_bytes(const Range& operators) const;
  [[nodiscard]] std::int64_t held_bytes(const Range& operators) const;

  // Time what crosses the cut on its way between neighbours, when it travels as `scale` of its bytes:
  // activations from the device before the cut to the one behind, gradients back. No time where both are one
  // device.
  [[nodiscard]] Transfer activations(std::int64_t cut, int before, int behind, double scale = 1) const;
  [[nodiscard]] Transfer gradients(std::int64_t cut, int before, int behind, double scale = 1) const;

 private:
  const OperatorDag* dag_;
  const PairCluster* cluster_;
  MemoryRule memory_;
  std::vector<StageSeconds> work_;  // sums of operators in front, in operations
  std::vector<std::int64_t> parameter_bytes_, kept_bytes_;
  std::vector<OperatorId> tied_;
};

}  // namespace dear::methods::pipeline
