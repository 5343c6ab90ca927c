#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "dear/platform/algorithm/program.h"

namespace dear::algorithm {

// Makers of programs for any number of ranks. Those of all-gathers have one block for each rank, those of
// broadcasts from rank 0 as many as are asked for, or as many as ranks where the algorithm shares them out.
Program ring_all_gather(int ranks);
Program ring_reduce_scatter(int ranks);
Program doubling_all_gather(int ranks);
Program pairwise_all_gather(int ranks);
Program bruck_all_gather(int ranks);

Program chain_broadcast(int ranks, int blocks);
Program scatter_broadcast(int ranks, int blocks);
Program double_tree_broadcast(int ranks, int blocks);

// Averages of devices that have no fast network between all of them. An edge of a graph: both ranks send each
// other their block, block r being rank r's; blocks of others stay as they are.
Program neighbour_gather(int ranks, const std::vector<std::pair<int, int>>& edges);
// Cells are as many ranks in a row, the last ones perhaps fewer. The sum of each cell, on its ranks; and the
// sum of all, by the first ranks of cells. ConfigError for other than 1 to `ranks` cells.
Program all_reduce_in_cells(int ranks, int cells);
Program all_reduce_by_cells(int ranks, int cells);

// Block q * chunks + c is chunk c for rank q.
Program pairwise_all_to_all(int ranks, int chunks);
// [Note: all-to-all-v] First an all-to-all of counts: block q tells rank q how much of each chunk will come.
// Then one of chunks: block ranks + q * chunks + c is chunk c for rank q, of any size. Both ends know the
// sizes by then, so a message without bytes travels on neither; and as each chunk goes straight to its place,
// a program that is right for full chunks is right for any counts.
Program pairwise_all_to_all_v(int ranks, int chunks);

// A way to carry collectives, as the literature names it. An all-gather read backwards is its reduce-scatter,
// a broadcast read backwards its reduce, unless it has one of its own; the two halves together are its
// all-reduce.
struct Algorithm {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  Program (*all_gather)(int ranks) = nullptr;      // nullptr for what it does not have
  Program (*reduce_scatter)(int ranks) = nullptr;  // its own
  Program (*broadcast)(int ranks, int blocks) = nullptr;
  Program (*all_to_all)(int ranks, int chunks) = nullptr;
  Program (*all_to_all_v)(int ranks, int chunks) = nullptr;
};
const std::vector<Algorithm>& algorithms();
const Algorithm& find_algorithm(std::string_view name);  // ConfigError that lists them all

// What the whole of a collective needs to know.
struct Shape {
  int ranks = 1;
  int root = 0;    // of a broadcast or reduce
  int blocks = 1;  // of a broadcast, reduce or all-reduce that is pipelined, and for each rank in an
                   // all-to-all or all-to-all-v; else as many as ranks
};

bool has(const Algorithm& algorithm, Collective collective);
// ConfigError for what it does not have, and for a shape that cannot be.
Program make_program(const Algorithm& algorithm, Collective collective, const Shape& shape);

// Inside each node by one algorithm, between nodes by another: of N nodes with L ranks each, rank n · L + l
// is rank l of node n. A reduce-scatter, all-gather or all-reduce exchanges with the ranks of the same number
// on other nodes, so all ranks of a node share its link. ConfigError where one of the two lacks the
// collective.
Program hierarchical(const Algorithm& inside, const Algorithm& across, Collective collective, int nodes,
                     int ranks_per_node);

}  // namespace dear::algorithm
