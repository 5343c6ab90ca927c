#pragma once

#include <cstdint>

namespace dear::comm {

// A BitField names some bits of a word that holds several numbers: the lowest bit, and how many bits there
// are.
struct BitField {
  int begin;
  int bits;

  [[nodiscard]] constexpr std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
  [[nodiscard]] constexpr bool fits(std::uint64_t value) const { return value <= most(); }
  // Shifts the value to its bits; bits of the value that do not fit are cut off.
  [[nodiscard]] constexpr std::uint64_t at_its_place(std::uint64_t value) const {
    return (value & most()) << begin;
  }
  [[nodiscard]] constexpr std::uint64_t in(std::uint64_t word) const { return (word >> begin) & most(); }
};

}  // namespace dear::comm
