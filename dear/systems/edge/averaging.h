#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/methods/edge/gossip.h"
#include "dear/systems/edge/messages.h"

// Averages of vectors over the ranks of a group, as edge devices make them. All ranks call alike with vectors
// of one length, fp64; errors are those of the group.
namespace dear::systems::edge {

// Gossip: each rank exchanges its vector with its neighbours, those whose weight is not 0, over messages.
class Gossip {
 public:
  // ConfigError on every rank for weights of another number of ranks, or that are not doubly stochastic.
  Gossip(const Group& group, methods::edge::Weights weights, std::int64_t elements);
  // x_i <- sum_j W_ij x_j, in the order of ranks.
  void mix(std::vector<double>& own);

 private:
  const Group group_;
  const methods::edge::Weights weights_;
  std::unique_ptr<Messages> messages_;     // none for one rank
  std::vector<Message*> received_, sent_;  // by neighbour, ascending
};

// Hierarchical: ranks of a cell average, then cells do by their first ranks, which tell the others. Cells are
// as many ranks in a row, the last one perhaps fewer; their means weigh as their ranks do.
class Hierarchy {
 public:
  Hierarchy(const Group& group, int cells, std::int64_t elements);  // ConfigError for other than 1 to ranks
  void mix_cell(std::vector<double>& own);
  void mix_all(std::vector<double>& own);

 private:
  int ranks_ = 0;
  std::optional<Group> cell_, heads_;  // no heads on ranks that are none
  Buffer of_cell_, of_heads_;
};

// sum_i |x_i - mean|^2, the same on every rank.
double disagreement(const Group& group, const std::vector<double>& own, const std::vector<double>& mean);
// The mean of all ranks.
std::vector<double> mean_of(const Group& group, const std::vector<double>& own);

}  // namespace dear::systems::edge
