#pragma once

#include <cstdint>
#include <string>

namespace dear {

// How contributions of the ranks become one.
enum class Reduction : std::uint8_t { sum, average, max, min };

std::string name_of(Reduction reduction);

}  // namespace dear
