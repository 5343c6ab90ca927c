#pragma once

#include <array>
#include <cstdint>

#include <torch/types.h>

namespace dear {

// A sum of numbers that are not negative, the same bits in whatever order and groups they are added: digits
// of a fixed-point number, wide enough for the square of every fp32. Of a term, what lies below 2^-256 is cut
// off. Copied as bytes from rank to rank.
class ExactSum {
 public:
  void add(double term);  // at least 0; NaN and infinity make the sum so
  void add(const ExactSum& other);
  // To about the precision of a double. Infinite also where a term is above 2^276.
  [[nodiscard]] double value() const;

 private:
  static constexpr int kBitsOfDigit = 32, kBitsBelowOne = 256, kDigits = 17;
  // Carries are not passed on before value(): there is room for 2^31 terms.
  std::array<std::int64_t, kDigits> digits_{};  // least significant first
  double not_finite_ = 0;                       // the sum of terms that are not
};

// The sum of the squares of all elements, of a tensor on the CPU that is dense in memory. Terms are the sums,
// in double precision, of 16 elements in the order of memory (8 of fp64), counted from the first: so a tensor
// may be cut into parts at multiples of 64 bytes, and their sums added, and the result keeps its bits.
ExactSum sum_of_squares(const torch::Tensor& tensor);

}  // namespace dear
