#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dear/base/vocabulary/dtype.h"

namespace dear {

// How the contributions of all ranks are combined, element by element. bitwise_or is for integers: a bit of
// the result is set where any rank has it set.
enum class Reduction : std::uint8_t { sum, average, max, min, bitwise_or };

std::string name_of(Reduction reduction);  // "bitwise or"

// Why elements of this type have no such reduction, as the second half of a sentence; "" where they have it.
std::string_view obstacle_to(DType dtype, Reduction reduction);

}  // namespace dear
