#include "dear/base/vocabulary/printable.h"

#include <array>

namespace dear {
namespace {

// Bytes of the UTF-8 character at the front of `text` (RFC 3629), 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7f;
  return lead == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // C1
}

}  // namespace

Character first_character(std::string_view text) {
  const std::size_t length = utf8_length(text);
  if (length == 0) return {.bytes = text.substr(0, 1)};
  const std::string_view bytes = text.substr(0, length);
  return {.bytes = bytes, .printable = !is_control(bytes)};
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const Character next = first_character(text);
    if (!next.printable) return false;
    text.remove_prefix(next.bytes.size());
  }
  return true;
}

std::string printable(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const Character next = first_character(text);
    if (next.printable) {
      result += next.bytes;
    } else {
      for (const char c : next.bytes) {
        const auto byte = static_cast<unsigned char>(c);
        result += "\\x";
        result += kDigits[byte >> 4U];
        result += kDigits[byte & 15U];
      }
    }
    text.remove_prefix(next.bytes.size());
  }
  return result;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80)
    --most;  // not within a character
  return std::string(text.substr(0, most)) + "...";
}

}  // namespace dear
