#pragma once

#include <cstdint>

namespace dear::channels {

// What a rank tells all others outside of the order of messages, on MPI's control lane.
struct Notice {
  enum class Kind : std::uint32_t { aborted, left };
  Kind kind = Kind::left;
  std::uint32_t session = 0;  // see MpiWorld
  char text[1500] = "";
};

}  // namespace dear::channels
