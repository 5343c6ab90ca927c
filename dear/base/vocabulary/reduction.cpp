#include "dear/base/vocabulary/reduction.h"

namespace dear {

std::string name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::average:
      return "average";
    case Reduction::max:
      return "max";
    case Reduction::min:
      return "min";
    case Reduction::bitwise_or:
      return "bitwise or";
  }
  return "unknown reduction";
}

std::string_view obstacle_to(DType dtype, Reduction reduction) {
  const bool adds = reduction == Reduction::sum || reduction == Reduction::average;
  const bool whole = dtype == DType::u8 || dtype == DType::i32 || dtype == DType::i64;
  if (adds && dtype == DType::u8) {
    return "bytes are moved, compared and combined bit by bit, never added; use int32 to count";
  }
  if (reduction == Reduction::bitwise_or && !whole) {
    return "the bits of floating-point numbers are not combined; use uint8, int32 or int64";
  }
  return "";
}

}  // namespace dear
