#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/methods/edge/paba.h"
#include "dear/platform/cluster/pair_cluster.h"
#include "dear/systems/edge/block_task.h"

namespace dear::systems::edge {

// Block-parallel training by a plan of PABA (Wen, Bennis and Huang 2020, arXiv 2003.04544) on ranks: rank 0
// is the server, rank 1 + g * N + n is worker n of group g. Each iteration the server sends every worker its
// group's block and the margins of its samples, gets the gradients of the block, adds them up over workers,
// and takes a step of gradient descent. Samples lie on the server and their workers.
struct PartelJob {
  methods::edge::PabaProblem problem;  // its parameters are the units of the task
  methods::edge::PabaPlan plan;
  BlockTaskShape task;
  int iterations = 20;
  double step_size = 1;
  [[nodiscard]] int ranks() const;
};

// Channels as the plan has them. The link from the server to a worker takes the block in the time that its
// band has for it, after a latency of what does not grow with the block, the margins among it; the link back
// likewise takes the gradient. Numbers travel in fp64, in the time of the bits that the problem says.
PairCluster channels_of(const PartelJob& job);

struct PartelTrained {
  std::vector<double> seconds;  // by iteration, from the first byte of a block to the last of a gradient
  std::vector<std::vector<double>> worker_seconds;  // by group and worker, the median
  std::vector<double> losses;                       // before the first iteration, and after each
  double difference = 0;  // from gradient descent in one process: the largest of a parameter, relative
};

// On a group whose links are channels_of(). All ranks call it alike; what it returns is whole on rank 0. A
// worker computes its gradient, and sleeps until a processor of its frequency would have it. `stepped` is
// called on rank 0. ConfigError for another number of ranks, or where the plan's whole blocks are not those
// of the task; errors of the group, which name the worker.
PartelTrained train_partel(const PartelJob& job, const Group& group,
                           const std::function<void(int done, double loss)>& stepped = {});

}  // namespace dear::systems::edge
