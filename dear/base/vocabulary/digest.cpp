#include "dear/base/vocabulary/digest.h"

namespace dear {

void Digest::add_byte(unsigned char byte) {
  value_ ^= byte;
  value_ *= 1099511628211ULL;
}

Digest& Digest::add(std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(value >> shift));
  return *this;
}

Digest& Digest::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));
  for (const char c : text) add_byte(static_cast<unsigned char>(c));
  return *this;
}

std::string Digest::hex() const {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value_ >> shift) & 0xF];
  return text;
}

}  // namespace dear
