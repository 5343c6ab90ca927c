#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm {
namespace {

std::string full_name(const Algorithm& algorithm, Collective collective) {
  return fmt::format("{} {}", algorithm.name, name_of(collective));
}

// From rank 0 to `root`: the ranks move around the ring.
Program rooted(const Program& from_zero, int root) {
  std::vector<int> ranks(static_cast<std::size_t>(from_zero.ranks));
  for (int rank = 0; rank < from_zero.ranks; ++rank) {
    ranks[static_cast<std::size_t>(rank)] = (rank + root) % from_zero.ranks;
  }
  std::vector<std::vector<Range>> blocks;
  for (int block = 0; block < from_zero.blocks; ++block) {
    blocks.push_back({{.begin = block, .end = block + 1}});
  }
  Program program = from_zero;
  program.rounds.clear();
  program.root = root;
  embed(from_zero, ranks, blocks, 0, program);
  return program;
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> kTable = {
      {.name = "ring",
       .summary = "neighbours pass blocks around; every link carries as little as can be, in P - 1 rounds",
       .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002",
       .all_gather = ring_all_gather,
       .reduce_scatter = ring_reduce_scatter,
       .broadcast = chain_broadcast},
      {.name = "halving-doubling",
       .summary =
           "pairs at distance 1, 2, 4, ... exchange all they have; as many bytes as a ring, log2 P rounds",
       .source = "Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521",
       .all_gather = doubling_all_gather,
       .broadcast = scatter_broadcast},
      {.name = "pairwise",
       .summary = "each block goes straight to its rank, one partner in a round",
       .source = "Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521",
       .all_gather = pairwise_all_gather,
       .all_to_all = pairwise_all_to_all,
       .all_to_all_v = pairwise_all_to_all_v},
      {.name = "bruck",
       .summary = "log2 P rounds, rounded up, for any number of ranks",
       .source = "Bruck et al. 1997, doi:10.1109/71.642949",
       .all_gather = bruck_all_gather},
      {.name = "double-tree",
       .summary =
           "half of the vector down each of two binary trees, pipelined; inner nodes of one are leaves of "
           "the other",
       .source = "Sanders, Speck, Träff 2009, doi:10.1016/j.parco.2009.09.001",
       .broadcast = double_tree_broadcast},
  };
  return kTable;
}

const Algorithm& find_algorithm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name == name) {
      return algorithm;
    }
    names.push_back(algorithm.name);
  }
  throw ConfigError(fmt::format("there is no algorithm '{}'{} choose one of {}", name,
                                did_you_mean(name, names), fmt::join(names, ", ")));
}

bool has(const Algorithm& algorithm, Collective collective) {
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return algorithm.all_gather != nullptr;
    case Collective::broadcast:
    case Collective::reduce:
      return algorithm.broadcast != nullptr;
    case Collective::all_reduce:
      return algorithm.all_gather != nullptr || algorithm.broadcast != nullptr;
    case Collective::all_to_all:
      return algorithm.all_to_all != nullptr;
    case Collective::all_to_all_v:
      return algorithm.all_to_all_v != nullptr;
    case Collective::barrier:
      break;
  }
  return false;
}

Program make_program(const Algorithm& algorithm, Collective collective, const Shape& shape) {
  if (!has(algorithm, collective)) {
    throw ConfigError(fmt::format("algorithm {} has no {}", algorithm.name, name_of(collective)));
  }
  if (shape.ranks < 1 || shape.blocks < 1 || shape.root < 0 || shape.root >= shape.ranks) {
    throw ConfigError(fmt::format("no {} has {} ranks, {} blocks and the root {}",
                                  full_name(algorithm, collective), shape.ranks, shape.blocks, shape.root));
  }
  const auto broadcast = [&](int root) {
    Program program = rooted(algorithm.broadcast(shape.ranks, shape.blocks), root);
    program.name = full_name(algorithm, Collective::broadcast);
    return program;
  };
  const auto gather = [&] {
    Program program = algorithm.all_gather(shape.ranks);
    program.name = full_name(algorithm, Collective::all_gather);
    return program;
  };
  const std::string name = full_name(algorithm, collective);
  const auto scatter = [&] {
    Program program = algorithm.reduce_scatter != nullptr ? algorithm.reduce_scatter(shape.ranks)
                                                          : reversed(gather(), name);
    program.name = name;
    return program;
  };
  switch (collective) {
    case Collective::all_gather:
      return gather();
    case Collective::reduce_scatter:
      return scatter();
    case Collective::broadcast:
      return broadcast(shape.root);
    case Collective::reduce:
      return reversed(broadcast(shape.root), name);
    case Collective::all_to_all:
      return algorithm.all_to_all(shape.ranks, shape.blocks);
    case Collective::all_to_all_v:
      return algorithm.all_to_all_v(shape.ranks, shape.blocks);
    case Collective::all_reduce:
    case Collective::barrier:
      break;
  }
  if (algorithm.all_gather != nullptr) {
    return concatenated(scatter(), gather(), name);
  }
  const Program second = broadcast(0);
  return concatenated(reversed(second, name), second, name);
}

}  // namespace dear::algorithm
