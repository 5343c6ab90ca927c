#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

// [Note: two trees] All ranks but the root stand in a row, at positions 1, ..., n. The first tree is the
// binary search tree over them whose top is the largest power of two in n: its inner nodes lie at even
// positions. The second is the first, moved on by one: its inner nodes lie at odd ones. So each rank has
// children in one tree at most, and sends about as much as it receives when each tree carries half of the
// vector.
struct Edge {
  int parent;  // position; 0 is the root
  int child;
  int depth;  // of the child: 0 is the top of the tree
};

// The tree over positions offset + 1, ..., offset + count.
void grow(int offset, int count, int parent, int depth, std::vector<Edge>& edges) {
  if (count == 0) {
    return;
  }
  int top = 1;
  while (2 * top <= count) {
    top *= 2;
  }
  edges.push_back({.parent = parent, .child = offset + top, .depth = depth});
  grow(offset, top - 1, offset + top, depth + 1, edges);
  grow(offset + top, count - top, offset + top, depth + 1, edges);
}

// 0 or 1 for each edge, so that no rank sends along two edges of one colour, or receives along two: as each
// sends along two at most, and receives along two, edges that meet form paths and even cycles, where colours
// alternate.
std::vector<int> colours_of(const std::vector<Edge>& edges, int positions) {
  std::vector<std::vector<std::size_t>> by_parent(static_cast<std::size_t>(positions));
  std::vector<std::vector<std::size_t>> by_child(static_cast<std::size_t>(positions));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    by_parent[static_cast<std::size_t>(edges[i].parent)].push_back(i);
    by_child[static_cast<std::size_t>(edges[i].child)].push_back(i);
  }
  std::vector<int> colours(edges.size(), -1);
  for (std::size_t start = 0; start < edges.size(); ++start) {
    if (colours[start] >= 0) {
      continue;
    }
    colours[start] = 0;
    std::vector<std::size_t> reached = {start};
    while (!reached.empty()) {
      const std::size_t edge = reached.back();
      reached.pop_back();
      for (const auto& meeting : {by_parent[static_cast<std::size_t>(edges[edge].parent)],
                                  by_child[static_cast<std::size_t>(edges[edge].child)]}) {
        for (const std::size_t other : meeting) {
          if (colours[other] < 0) {
            colours[other] = 1 - colours[edge];
            reached.push_back(other);
          }
        }
      }
    }
  }
  return colours;
}

}  // namespace

// Rounds 2 t and 2 t + 1 carry block t - d of a tree's half along its edges of depth d, those of one colour
// each.
Program double_tree_broadcast(int ranks, int blocks) {
  Program program = empty_program("double-tree broadcast", Collective::broadcast, ranks, blocks);
  const int others = ranks - 1;
  std::vector<Edge> edges;
  grow(0, others, 0, 0, edges);
  const auto moved_on = [&](int position) {
    if (position == 0) {
      return 0;
    }
    return position < others ? position + 1 : 1;
  };
  const std::size_t in_each = edges.size();
  for (std::size_t i = 0; i < in_each; ++i) {
    const Edge edge = edges[i];
    edges.push_back({.parent = moved_on(edge.parent), .child = moved_on(edge.child), .depth = edge.depth});
  }
  const std::vector<int> colours = colours_of(edges, ranks);
  const int half = (blocks + 1) / 2;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const Range carried = i < in_each ? Range{.begin = 0, .end = half} : Range{.begin = half, .end = blocks};
    for (int block = carried.begin; block < carried.end; ++block) {
      const int round = 2 * (block - carried.begin + edges[i].depth) + colours[i];
      while (static_cast<int>(program.rounds.size()) <= round) {
        program.add_round();
      }
      program.send(round, edges[i].parent, edges[i].child, {{.begin = block, .end = block + 1}});
    }
  }
  return program;
}

}  // namespace dear::algorithm
