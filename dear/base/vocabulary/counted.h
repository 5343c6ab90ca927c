#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dear {

// "1 layer", "3 layers": a number with a noun whose plural ends with s.
inline std::string counted(std::size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace dear
