#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text of anybody's on a terminal: what would move its cursor, change its colours or end its line is shown
// instead of obeyed.
namespace dear {

// The first character of a text that is not empty: one of UTF-8 (RFC 3629), or a byte that begins none.
struct Character {
  std::string_view bytes;
  bool printable = false;  // no control character, C1 included, and no stray byte
};
Character first_character(std::string_view text);

[[nodiscard]] bool is_printable(std::string_view text);
// With every byte of what is not printable as \x1b.
std::string printable(std::string_view text);

// The text, or its beginning and "..." where it has more than `most` bytes.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace dear
