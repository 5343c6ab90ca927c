#pragma once

#include <cstdint>
#include <vector>

namespace dear::algorithm {

// What travels in an all-to-all-v: bytes[from * ranks + to]. What a rank keeps does not travel and counts for
// nothing. Before it, each rank tells every other how much comes, in 8 bytes for each of `chunks` chunks; 0
// where all know that already.
struct PairBytes {
  int ranks = 1;
  int chunks = 1;
  std::vector<std::int64_t> bytes{0};

  [[nodiscard]] std::int64_t at(int from, int to) const {
    return bytes[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) +
                 static_cast<std::size_t>(to)];
  }
  [[nodiscard]] std::int64_t counts_bytes() const { return std::int64_t{8} * chunks; }
  // All that travels, counts too.
  [[nodiscard]] std::int64_t total() const;
};

// ConfigError for a matrix of another size, and for less than nothing.
void validate(const PairBytes& pairs);

}  // namespace dear::algorithm
