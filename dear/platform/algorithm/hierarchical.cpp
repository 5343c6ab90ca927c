#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {

Program hierarchical(const Algorithm& inside, const Algorithm& across, Collective collective, int nodes,
                     int ranks_per_node) {
  if (nodes < 1 || ranks_per_node < 1) {
    throw ConfigError(fmt::format("{} nodes of {} ranks cannot be", nodes, ranks_per_node));
  }
  const std::string name =
      fmt::format("{} inside, {} across, {}", inside.name, across.name, name_of(collective));
  if (collective == Collective::reduce_scatter || collective == Collective::all_reduce) {
    const Program gather = hierarchical(inside, across, Collective::all_gather, nodes, ranks_per_node);
    const Program scatter = reversed(gather, name);
    return collective == Collective::reduce_scatter ? scatter : concatenated(scatter, gather, name);
  }
  if (collective != Collective::all_gather) {
    throw ConfigError(fmt::format("there is no hierarchical {}", name_of(collective)));
  }

  const int ranks = nodes * ranks_per_node;
  Program program = empty_program(name, collective, ranks, ranks);
  // Across: ranks of one number gather each other's blocks.
  const Program between = make_program(across, collective, {.ranks = nodes});
  for (int local = 0; local < ranks_per_node; ++local) {
    std::vector<int> members;
    std::vector<std::vector<Range>> blocks;
    for (int node = 0; node < nodes; ++node) {
      const int rank = node * ranks_per_node + local;
      members.push_back(rank);
      blocks.push_back({{.begin = rank, .end = rank + 1}});
    }
    embed(between, members, blocks, 0, program);
  }
  // Inside: what is one block there are the blocks of that number on all nodes.
  const Program within = make_program(inside, collective, {.ranks = ranks_per_node});
  for (int node = 0; node < nodes; ++node) {
    std::vector<int> members;
    std::vector<std::vector<Range>> blocks;
    for (int local = 0; local < ranks_per_node; ++local) {
      members.push_back(node * ranks_per_node + local);
      std::vector<Range>& gathered = blocks.emplace_back();
      for (int other = 0; other < nodes; ++other) {
        const int rank = other * ranks_per_node + local;
        gathered.push_back({.begin = rank, .end = rank + 1});
      }
    }
    embed(within, members, blocks, static_cast<int>(between.rounds.size()), program);
  }
  return program;
}

}  // namespace dear::algorithm
