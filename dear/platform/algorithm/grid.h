#pragma once

#include <string_view>
#include <vector>

#include "dear/platform/algorithm/program.h"

namespace dear::algorithm {

// A grid of ranks: one coordinate in each dimension. Ranks are numbered inside out, as those of a cluster:
// the coordinate of the innermost dimension counts fastest.
struct Grid {
  std::vector<int> sizes;  // members of a dimension, innermost first; at least one, each at least 1

  [[nodiscard]] int dimensions() const { return static_cast<int>(sizes.size()); }
  [[nodiscard]] int ranks() const;                // the product of all sizes
  [[nodiscard]] int stride(int dimension) const;  // between neighbours: the product of the inner sizes
  [[nodiscard]] int coordinate(int rank, int dimension) const;
  // The ranks that differ from `rank` in this dimension at most, by coordinate.
  [[nodiscard]] std::vector<int> line(int rank, int dimension) const;
  friend bool operator==(const Grid&, const Grid&) = default;
};

// ConfigError naming the dimension: none at all, a size below 1, more than 2^30 ranks.
void validate(const Grid& grid);

// ConfigError, unless each dimension of more than one member stands in `order` once, and no other does.
void validate_order(const Grid& grid, const std::vector<int>& order);

// The ways to reduce-scatter and to gather along a line: "ring", "halving-doubling", and "direct", in which
// each member sends to all others in one round.
const std::vector<std::string_view>& line_algorithms();
// A reduce-scatter or an all-gather among `members` ranks, with a block for each. ConfigError that lists the
// algorithms for another name, and for another collective or less than one member.
Program line_program(std::string_view algorithm, Collective collective, int members);

// [Note: dimension by dimension] A reduce-scatter goes along the lines of the dimensions in an order, in each
// on what the ones before left; an all-gather the opposite way. Whatever the order, rank r ends with block r
// of P: in every dimension it keeps the blocks of the ranks that have its coordinate there. So an order
// decides when bytes travel where, and not who owns what: chunks of a vector may each have their own (Rashidi
// et al. 2022, doi:10.1145/3470496.3527382), and a reduce-scatter and the all-gather after it need not agree.
//
// Adds the rounds of one dimension of such a collective to `outer`, from `round` on: a reduce-scatter, or an
// all-gather, along all lines of `dimension` at once, of the blocks that ranks hold when the dimensions
// `before` of a reduce-scatter are done. Block b of the grid is block b · step + offset of `outer`, which has
// step · P blocks.
struct LineRounds {
  int dimension = 0;
  std::vector<int> before;
  Collective collective = Collective::reduce_scatter;
  std::string_view algorithm = "ring";
};
void add_line_rounds(const Grid& grid, const LineRounds& what, int step, int offset, int round,
                     Program& outer);

}  // namespace dear::algorithm
