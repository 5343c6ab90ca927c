#pragma once

#include <cstdint>

namespace dear::collective {

// Some bits of a word that holds several numbers: the lowest, and how many they are.
struct BitField {
  int begin;
  int bits;

  [[nodiscard]] constexpr std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
  [[nodiscard]] constexpr bool fits(std::uint64_t value) const { return value <= most(); }
  // Cut off where it does not fit.
  [[nodiscard]] constexpr std::uint64_t at_its_place(std::uint64_t value) const {
    return (value & most()) << begin;
  }
  [[nodiscard]] constexpr std::uint64_t in(std::uint64_t word) const { return (word >> begin) & most(); }
};

}  // namespace dear::collective
