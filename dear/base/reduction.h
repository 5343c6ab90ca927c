#pragma once

#include <cstdint>
#include <string>

namespace dear {

// How the contributions of all ranks are combined, element by element.
enum class Reduction : std::uint8_t { sum, average, max, min };

std::string name_of(Reduction reduction);

}  // namespace dear
