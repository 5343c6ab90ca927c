#pragma once

#include "dear/predict/sim/jobs.h"
#include "dear/schedule/policies/step.h"

namespace dear::sim {

// Ranks that share a collective, evenly spaced.
struct Team {
  int first = 0;  // of them: no two teams of one process group have the same
  int stride = 1;
  int size = 1;

  [[nodiscard]] int rank_of(int member) const { return first + member * stride; }
  [[nodiscard]] int member_of(int rank) const { return (rank - first) / stride; }
};

// Who shares collectives of which process group: members of a job; or, of one job alone, those of a node,
// which are neighbours, and those in the same place of every node.
struct Teams {
  int ranks = 1;
  int ranks_of_node = 1;
  Jobs jobs{};

  [[nodiscard]] Team of(ProcessGroup group, int rank) const {
    switch (group) {
      case ProcessGroup::node:
        return {.first = rank - rank % ranks_of_node, .stride = 1, .size = ranks_of_node};
      case ProcessGroup::across_nodes:
        return {.first = rank % ranks_of_node, .stride = ranks_of_node, .size = ranks / ranks_of_node};
      case ProcessGroup::all:
        break;
    }
    return {.first = jobs.rank_of(jobs.job_of(rank, ranks), 0, ranks),
            .stride = jobs.placement == Placement::spread ? jobs.count : 1,
            .size = ranks / jobs.count};
  }
};

}  // namespace dear::sim
