#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace dear::readers_test {

// Makes files that are nearly right: a good one with one to three mistakes, of bytes, or of values, names and
// numbers where it is JSON. The same seed makes the same files.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}
  std::string mutant_of(const std::string& good, bool json);

 private:
  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  std::string with_other_bytes(std::string text);
  std::string with_other_value(const std::string& text);

  std::mt19937_64 random_;
};

}  // namespace dear::readers_test
