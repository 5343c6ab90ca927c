#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/comm/message_programs/executor.h"
#include "dear/methods/edge/gossip.h"
#include "dear/platform/algorithm/program.h"

// Averages of vectors over the ranks of a group, as edge devices make them: programs of
// dear/platform/algorithm over messages. All ranks call alike with vectors of one length, fp64; errors are
// those of the group.
namespace dear::systems::edge {

// A program on vectors of one rank, executed again and again.
class ProgramOnVectors {
 public:
  // `elements`: of each block, 0 for one that this rank neither sends nor gets. A collective.
  ProgramOnVectors(const Group& group, const algorithm::Program& program,
                   const std::vector<std::int64_t>& elements, std::string what);
  ProgramOnVectors(ProgramOnVectors&&) = default;
  ProgramOnVectors& operator=(ProgramOnVectors&&) = delete;
  ~ProgramOnVectors();

  // All blocks, one after another.
  [[nodiscard]] std::vector<double>& numbers() { return memory_->numbers; }
  void execute();

 private:
  struct Memory {
    std::vector<double> numbers;
    message_programs::StagingMemory stage;
    std::unique_ptr<message_programs::Executor> executor;
  };
  std::chrono::duration<double> timeout_;
  std::string what_;  // it waits for, for errors
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::unique_ptr<channels::Channels> channels_;
};

// Gossip: each rank exchanges its vector with its neighbours, those whose weight is not 0.
class Gossip {
 public:
  // ConfigError on every rank for weights of another number of ranks, or that are not doubly stochastic.
  Gossip(const Group& group, methods::edge::Weights weights, std::int64_t elements);
  // x_i <- sum_j W_ij x_j, in the order of ranks.
  void mix(std::vector<double>& own);

 private:
  std::vector<double> row_;  // this rank's weights, of itself and its neighbours, in the order of ranks
  std::size_t own_ = 0;      // its place among them
  std::unique_ptr<ProgramOnVectors> exchange_;  // none for one rank
};

// Hierarchical: ranks of a cell average, then cells do by their first ranks, which tell the others. Cells are
// as many ranks in a row, the last one perhaps fewer; their means weigh as their ranks do.
class Hierarchy {
 public:
  Hierarchy(const Group& group, int cells, std::int64_t elements);  // ConfigError for other than 1 to ranks
  void mix_cell(std::vector<double>& own);
  void mix_all(std::vector<double>& own);

 private:
  static void average(ProgramOnVectors& sum, int ranks, std::vector<double>& own);
  int ranks_ = 0, of_cell_ = 0;
  std::unique_ptr<ProgramOnVectors> in_cells_, of_all_;  // none for one rank
};

// sum_i |x_i - mean|^2, the same on every rank.
double disagreement(const Group& group, const std::vector<double>& own, const std::vector<double>& mean);
// The mean of all ranks.
std::vector<double> mean_of(const Group& group, const std::vector<double>& own);

}  // namespace dear::systems::edge
