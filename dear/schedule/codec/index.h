#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// The header of a sketch's index. It travels with the index by bitwise or, so that afterwards every rank
// knows what each rank met.
namespace dear::codec {

// Words of the header, a multiple of 64 bytes.
std::int64_t index_header_words(int ranks);

// Met says what one rank found in its values that a sketch cannot hold, and their largest magnitude.
struct Met {
  bool not_finite = false;  // NaN or infinity
  bool overflow = false;    // a value too large for sums of a row, or for fixed point at the scale in use
  bool inexact = false;     // a value of which fixed point loses bits at the scale in use
  std::uint32_t largest_bits = 0;  // of the largest magnitude; see Kernels::scan
};

// Writes the header, all of it.
void write_header(std::span<std::uint64_t> index, int ranks, int rank, const Met& met);

// An IndexHeader holds the findings (Met) of all ranks, as their combined index carries them.
struct IndexHeader {
  static constexpr int kNoExponent = std::numeric_limits<int>::min();
  std::vector<int> not_finite;  // ranks that met NaN or infinity
  std::vector<int> overflow;    // ranks whose values were too large
  std::vector<int> inexact;     // ranks whose values lost bits
  int exponent = kNoExponent;   // all magnitudes are below 2^exponent; kNoExponent: all are zero
  // Whether the rows add up to the sum; otherwise every rank goes dense.
  [[nodiscard]] bool usable() const { return not_finite.empty() && overflow.empty() && inexact.empty(); }
};
IndexHeader read_header(std::span<const std::uint64_t> index, int ranks);

}  // namespace dear::codec
