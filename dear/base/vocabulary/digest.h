#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dear {

// 64-bit FNV-1a over a sequence of values: one number that ranks compare to prove that they agree. Not for
// security; a digest that a user sees is SHA-256. http://www.isthe.com/chongo/tech/comp/fnv/
class Digest {
 public:
  Digest& add(std::uint64_t value);
  Digest& add(std::string_view text);  // its length too, so that "ab","c" differs from "a","bc"
  [[nodiscard]] std::uint64_t value() const { return value_; }
  [[nodiscard]] std::string hex() const;  // 16 digits

 private:
  void add_byte(unsigned char byte);
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace dear
