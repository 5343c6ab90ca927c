#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace dear::optim {

// Texts that stand one after another in one text, each behind its length.
inline void append(std::string& all, std::string_view part) {
  const std::uint64_t size = part.size();
  all.append(reinterpret_cast<const char*>(&size), sizeof size);
  all += part;
}
// Takes the next one off the text.
inline std::string take_next(std::string_view& all) {
  std::uint64_t size = 0;
  std::memcpy(&size, all.data(), sizeof size);
  std::string part(all.substr(sizeof size, size));
  all.remove_prefix(sizeof size + size);
  return part;
}

}  // namespace dear::optim
